"""Callbacks of CUPTI as Python objects, made to happen by the double."""

import ctypes
import re
import sys
from pathlib import Path

import pytest

from tests import cupti_double
from ullage.cupti import callbacks, nvtx, permissions
from ullage.cupti.callbacks import Subscriber, name
from ullage.cupti.heard import Domain, Heard, Resource, State, Synchronize
from ullage.cupti.library import find
from ullage.cupti.results import CuptiError
from ullage.cupti.surroundings import Surroundings

RANGE_PUSH_A, RANGE_PUSH_EX, DOMAIN_RANGE_PUSH_EX, RANGE_POP = (
    nvtx.FUNCTIONS.index(function) for function in ("nvtxRangePushA", "nvtxRangePushEx", "nvtxDomainRangePushEx", "nvtxRangePop")
)


@pytest.fixture
def double(monkeypatch):
    monkeypatch.delenv("CUPTI_DOUBLE_FAULTS", raising=False)
    yield cupti_double.loaded()
    cupti_double.loaded()


@pytest.fixture
def library(double):
    return find(cupti_double.library())


@pytest.fixture
def heard():
    return []


@pytest.fixture
def subscriber(library, heard):
    with Subscriber(library, heard.append) as subscribed:
        yield subscribed


def test_nothing_is_heard_before_it_is_enabled(double, subscriber, heard):
    double.cupti_double_resource(Resource.CONTEXT_CREATED, 0x10, None)
    assert heard == []


def test_a_callback_is_heard_from_when_its_id_is_enabled_until_it_is_disabled(double, subscriber, heard):
    subscriber.enable(Domain.RESOURCE, Resource.STREAM_CREATED)
    assert subscriber.enabled(Domain.RESOURCE, Resource.STREAM_CREATED)
    double.cupti_double_resource(Resource.STREAM_CREATED, 0x10, 0x20)
    double.cupti_double_resource(Resource.CONTEXT_CREATED, 0x10, None)
    subscriber.enable(Domain.RESOURCE, Resource.STREAM_CREATED, on=False)
    double.cupti_double_resource(Resource.STREAM_CREATED, 0x10, 0x30)
    assert heard == [Heard(3, 3, "STREAM_CREATED", {"context": 0x10, "stream": 0x20})]


def test_a_domain_is_enabled_as_a_whole_and_all_domains_at_once(double, subscriber, heard):
    subscriber.enable(Domain.SYNCHRONIZE)
    double.cupti_double_synchronized(Synchronize.STREAM_SYNCHRONIZED, 0x10, 0x20)
    double.cupti_double_resource(Resource.CONTEXT_CREATED, 0x10, None)
    subscriber.enable_all()
    double.cupti_double_resource(Resource.CONTEXT_CREATED, 0x10, None)
    subscriber.enable_all(on=False)
    double.cupti_double_synchronized(Synchronize.CONTEXT_SYNCHRONIZED, 0x10, None)
    assert [(callback.name, callback.details) for callback in heard] == [
        ("STREAM_SYNCHRONIZED", {"context": 0x10, "stream": 0x20}),
        ("CONTEXT_CREATED", {"context": 0x10, "stream": 0}),
    ]


def test_a_call_is_heard_at_its_beginning_and_its_end_with_one_correlation(double, subscriber, heard):
    subscriber.enable(Domain.DRIVER, 307)
    correlation = double.cupti_double_enter(Domain.DRIVER, 307, b"cuLaunchKernel", None)
    double.cupti_double_exit(Domain.DRIVER, 307, b"cuLaunchKernel", None, correlation, 700)
    begin, end = (callback.details for callback in heard)
    assert begin == {"function": "cuLaunchKernel", "symbol": "", "context": 1, "correlation": correlation, "exit": False}
    assert end == begin | {"exit": True, "result": 700}


def test_a_driver_call_inside_a_runtime_call_has_the_same_correlation(double, subscriber, heard):
    subscriber.enable_all()
    outer = double.cupti_double_enter(Domain.RUNTIME, 211, b"cudaLaunchKernel", None)
    inner = double.cupti_double_enter(Domain.DRIVER, 307, b"cuLaunchKernel", None)
    double.cupti_double_exit(Domain.DRIVER, 307, b"cuLaunchKernel", None, inner, 0)
    double.cupti_double_exit(Domain.RUNTIME, 211, b"cudaLaunchKernel", None, outer, 0)
    assert [(callback.domain, callback.details["correlation"]) for callback in heard] == [(2, outer), (1, outer), (1, outer), (2, outer)]


def test_state_callbacks_tell_what_went_wrong(double, subscriber, heard):
    subscriber.enable(Domain.STATE)
    double.cupti_double_state(State.ERROR, 8, "no m\xf6re memory".encode())
    assert heard == [Heard(6, 2, "ERROR", {"code": 8, "text": "no m\xf6re memory"})]


def test_an_id_that_is_new_is_heard_without_a_name(double, subscriber, heard):
    subscriber.enable(Domain.RESOURCE)
    double.cupti_double_resource(99, 0x10, None)
    assert (heard[0].id, heard[0].name) == (99, "")


def attributes(text, kind=1):
    """nvtxEventAttributes_t: version 3, 48 bytes, the message's type at byte 32 and the message at 40."""
    memory = ctypes.create_string_buffer(48)
    ctypes.c_uint16.from_buffer(memory, 0).value, ctypes.c_uint16.from_buffer(memory, 2).value = 3, 48
    ctypes.c_int32.from_buffer(memory, 32).value = kind
    ctypes.c_char_p.from_buffer(memory, 40).value = text
    return memory


def test_the_text_of_an_nvtx_range_is_heard(double, subscriber, heard):
    subscriber.enable(Domain.NVTX)
    plain, extended = (ctypes.c_char_p * 1)(b"forward"), attributes(b"backward")
    double.cupti_double_nvtx(RANGE_PUSH_A, b"nvtxRangePushA", plain, None)
    double.cupti_double_nvtx(RANGE_PUSH_EX, b"nvtxRangePushEx", (ctypes.c_void_p * 1)(ctypes.addressof(extended)), None)
    double.cupti_double_nvtx(DOMAIN_RANGE_PUSH_EX, b"x", (ctypes.c_void_p * 2)(0xD0, ctypes.addressof(extended)), None)
    double.cupti_double_nvtx(RANGE_POP, b"nvtxRangePop", None, None)
    assert [callback.name for callback in heard] == ["nvtxRangePushA", "nvtxRangePushEx", "nvtxDomainRangePushEx", "nvtxRangePop"]
    assert [callback.details.get("text") for callback in heard] == ["forward", "backward", "backward", None]


@pytest.mark.parametrize("kind", [0, 2, 3])  # none, wide characters, a registered string: no text that can be read as such
def test_a_message_that_is_no_plain_text_is_left_out(double, subscriber, heard, kind):
    subscriber.enable(Domain.NVTX)
    extended = attributes(b"x", kind)
    double.cupti_double_nvtx(RANGE_PUSH_EX, b"nvtxRangePushEx", (ctypes.c_void_p * 1)(ctypes.addressof(extended)), None)
    assert heard[0].details == {"function": "nvtxRangePushEx"}


def test_nvtx_functions_have_the_numbers_of_nvidias_header():
    headers = [place / "nvidia/cu13/include/cupti_nvtx_cbid.h" for place in map(Path, sys.path)]
    header = next((path for path in headers if path.exists()), None) or pytest.skip("nvidia-cuda-cupti's headers are not installed")
    stated = dict(re.findall(r"CUPTI_CBID_NVTX_(nvtx\w+) *= (\d+)", header.read_text()))
    assert len(stated) == 49
    assert {function: int(number) for function, number in stated.items()} == {
        function: number for number, function in enumerate(nvtx.FUNCTIONS) if function
    }


def test_ids_have_the_numbers_of_nvidias_header():
    headers = [place / "nvidia/cu13/include/cupti_callbacks.h" for place in map(Path, sys.path)]
    header = next((path for path in headers if path.exists()), None) or pytest.skip("nvidia-cuda-cupti's headers are not installed")
    for prefix, ours in (("CBID_RESOURCE", Resource), ("CBID_SYNCHRONIZE", Synchronize), ("CBID_STATE", State)):
        stated = {label: int(number) for label, number in re.findall(rf"CUPTI_{prefix}_(\w+) *= (\d+)", header.read_text())}
        assert {label: number for label, number in stated.items() if number} == {member.name: member.value for member in ours}


# One subscriber


def test_a_second_subscriber_is_refused_with_who_the_first_may_be(subscriber, library, monkeypatch):
    environment = {"CUDA_INJECTION64_PATH": "/opt/libspy.so"}
    monkeypatch.setattr(callbacks, "holders", lambda: permissions.holders(Surroundings(environment=environment)))
    with pytest.raises(CuptiError) as refused:
        Subscriber(library)
    assert refused.value.code == 39 and "another profiler is already attached" in refused.value.problem
    assert refused.value.hint.startswith("it may be libspy.so (in CUDA_INJECTION64_PATH); one profiler at a time")
    assert refused.value.hint in str(refused.value)


def test_somebody_elses_subscription_is_refused_too(library, monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "subscriber")
    monkeypatch.setattr(callbacks, "holders", list)
    with pytest.raises(CuptiError, match="MULTIPLE_SUBSCRIBERS") as refused:
        Subscriber(library)
    assert refused.value.hint.startswith("one profiler at a time")


def test_after_closing_another_may_subscribe(library, heard):
    first = Subscriber(library)
    first.close()
    first.close()
    with Subscriber(library, heard.append) as second:
        second.enable(Domain.RESOURCE)


def test_an_exception_in_a_callback_is_kept_and_the_program_goes_on(double, library):
    def clumsy(callback):
        raise ZeroDivisionError(callback.name)

    with Subscriber(library, clumsy) as subscriber:
        subscriber.enable(Domain.RESOURCE)
        double.cupti_double_resource(Resource.CONTEXT_CREATED, 0x10, None)
        double.cupti_double_resource(Resource.STREAM_CREATED, 0x10, None)
        assert isinstance(subscriber.failure, ZeroDivisionError) and subscriber.failure.args == ("CONTEXT_CREATED",)


def test_an_unknown_domain_is_refused(subscriber, library):
    with pytest.raises(CuptiError, match="hearing of callback 2000 of domain DRIVER failed"):
        subscriber.enable(Domain.DRIVER, 2000)


def test_nvidias_own_library_names_its_callbacks():
    real = next((file for place in map(Path, sys.path) for file in (place / "nvidia/cu13/lib").glob("libcupti.so.1?")), None)
    if real is None or (known := find(real)).version is None or known.version > 130199:
        pytest.skip("no nvidia-cuda-cupti up to 13.1, which answers without a driver")
    # CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel = 307, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000 = 211
    assert (name(known, Domain.DRIVER, 307), name(known, Domain.RUNTIME, 211)) == ("cuLaunchKernel", "cudaLaunchKernel_v7000")
    assert name(known, Domain.DRIVER, 10**6) == ""
