"""Numbers from traces: latencies, their percentiles, throughput and goodput. Times are seconds."""
