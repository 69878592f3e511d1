// Vector clocks: for each agent (a thread, or a unit that works for one), the latest of its events that is known to have happened before.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace gpu {
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;

struct Event {
    int agent = -1;
    u32 time = 0; // 0: there was none
};
// What all who met at a barrier know alike is stored once for all of them; `own` is what this one knows beyond.
class Clock {
    std::shared_ptr<const std::vector<u32>> common;
    std::vector<Event> own;
    friend class Gathered;

  public:
    u32 of(int agent) const {
        for (auto &e : own)
            if (e.agent == agent) return e.time;
        return common && agent < int(common->size()) ? (*common)[agent] : 0;
    }
    bool knows(Event e) const { return !e.time || of(e.agent) >= e.time; }
    void learn(Event e) {
        if (knows(e)) return;
        for (auto &known : own)
            if (known.agent == e.agent) {
                known.time = e.time;
                return;
            }
        own.push_back(e);
    }
    void learn(const Clock &other) {
        if (other.common && other.common != common)
            for (size_t n = 0; n < other.common->size(); n++) learn(Event{int(n), (*other.common)[n]});
        for (auto &e : other.own) learn(e);
    }
};
// What all who arrive at a barrier know together.
class Gathered {
    std::vector<u32> times;
    std::shared_ptr<const std::vector<u32>> counted;
    void add(int agent, u32 time) {
        if (agent >= int(times.size())) times.resize(agent + 1);
        times[agent] = std::max(times[agent], time);
    }

  public:
    void add(const Clock &clock) {
        if (clock.common && clock.common != counted)
            for (size_t n = 0; n < clock.common->size(); n++) add(int(n), (*clock.common)[n]);
        counted = clock.common;
        for (auto &e : clock.own) add(e.agent, e.time);
    }
    Clock taken() {
        Clock all;
        all.common = std::make_shared<const std::vector<u32>>(std::move(times));
        times.clear();
        counted.reset();
        return all;
    }
};
} // namespace gpu
