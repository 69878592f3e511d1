/* A text that grows, and strings of JSON in it. */
#define _GNU_SOURCE
#include "recorder.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool text_room(struct text *text, size_t more) {
    if (text->room - text->length > more) return true;
    size_t room = (text->room + more) * 2 + 256;
    char *at = text->failed ? NULL : realloc(text->at, room);
    if (!at) text->failed = true;
    if (!at) return false;
    text->at = at;
    text->room = room;
    return true;
}

void text_bytes(struct text *text, const void *bytes, size_t length) {
    if (!text_room(text, length)) return;
    memcpy(text->at + text->length, bytes, length);
    text->length += length;
    text->at[text->length] = 0;
}

void text_add(struct text *text, const char *format, ...) {
    char words[512];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(words, sizeof words, format, values);
    va_end(values);
    if (length > 0) text_bytes(text, words, (size_t)length < sizeof words ? (size_t)length : sizeof words - 1);
}

/* The bytes of the UTF-8 sequence that begins here; 0 where none does. Surrogates and overlong forms are no UTF-8 (RFC 3629). */
static size_t sequence(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    size_t length = s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)) return 0;
    if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)) return 0;
    return length;
}

void text_quoted(struct text *text, const char *string) {
    text_bytes(text, "\"", 1);
    for (const unsigned char *s = (const unsigned char *)string; *s;) {
        size_t length = sequence(s);
        if (*s < 0x20 || *s == '"' || *s == '\\') text_add(text, "\\u%04x", *s);
        else if (length) text_bytes(text, s, length);
        else text_bytes(text, "\\ufffd", 6);
        s += length ? length : 1;
    }
    text_bytes(text, "\"", 1);
}

void text_free(struct text *text) {
    free(text->at);
    *text = (struct text){0};
}
