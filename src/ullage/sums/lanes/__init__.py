"""Intervals in, times out: unions, states of devices and hosts, what each was busy with."""
