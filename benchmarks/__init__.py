"""The measured goals, side by side with real RocketMQ and Kafka brokers. Run: `python -m benchmarks`."""
