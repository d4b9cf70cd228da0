"""Measuring on a fleet: the devices behind TVM's RPC tracker."""
