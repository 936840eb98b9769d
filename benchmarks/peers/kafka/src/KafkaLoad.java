// Load with Kafka's own clients: creates a topic, produces with a chosen promise. Prints one JSON line.

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class KafkaLoad {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        try {
            switch (arguments[0]) {
                case "create" -> create(options);
                case "produce" -> produce(options);
                default -> throw new IllegalArgumentException(arguments[0]);
            }
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void create(Map<String, String> options) throws Exception {
        Properties properties = new Properties();
        properties.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        try (Admin admin = Admin.create(properties)) {
            NewTopic topic = new NewTopic(options.get("topic"), number(options, "partitions", 4), (short) 1);
            admin.createTopics(List.of(topic)).all().get(60, TimeUnit.SECONDS);
        }
        System.out.println("{\"created\":true}");
    }

    /** One producer, one sending thread; the clock stops when every record is acknowledged. */
    private static void produce(Map<String, String> options) throws Exception {
        Properties properties = new Properties();
        properties.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        properties.put(ProducerConfig.ACKS_CONFIG, options.getOrDefault("acks", "1"));
        properties.put(ProducerConfig.LINGER_MS_CONFIG, options.getOrDefault("linger", "5"));
        properties.put(ProducerConfig.BATCH_SIZE_CONFIG, options.getOrDefault("batch-bytes", "131072"));
        properties.put(ProducerConfig.BUFFER_MEMORY_CONFIG, Long.toString(64L << 20));
        properties.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, options.getOrDefault("acks", "1").equals("all"));
        String topic = options.get("topic");
        byte[] body = body(number(options, "size", 1024));
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            send(producer, topic, body, number(options, "warmup", 50_000), 0);
            long count = number(options, "count", 500_000);
            long begin = System.nanoTime();
            send(producer, topic, body, count, number(options, "rate", 0));
            double seconds = (System.nanoTime() - begin) / 1e9;
            System.out.printf("%n{\"messages\":%d,\"seconds\":%.6f,\"rate\":%.1f}%n", count, seconds, count / seconds);
        }
    }

    /** A rate of 0 sends as fast as it goes; another one sends each record at its own moment. */
    private static void send(
            KafkaProducer<byte[], byte[]> producer, String topic, byte[] body, long count, int rate)
            throws InterruptedException {
        AtomicReference<Exception> failure = new AtomicReference<>();
        AtomicLong acknowledged = new AtomicLong();
        long begin = System.nanoTime();
        for (long i = 0; i < count; i++) {
            if (rate > 0) {
                long left = begin + i * 1_000_000_000L / rate - System.nanoTime();
                TimeUnit.NANOSECONDS.sleep(Math.max(0, left));
            }
            producer.send(new ProducerRecord<>(topic, body), (metadata, thrown) -> {
                if (thrown != null) {
                    failure.compareAndSet(null, thrown);
                } else {
                    acknowledged.incrementAndGet();
                }
            });
        }
        producer.flush();
        if (failure.get() != null || acknowledged.get() != count) {
            throw new IllegalStateException("not acknowledged", failure.get());
        }
    }

    private static byte[] body(int size) {
        StringBuilder text = new StringBuilder();
        while (text.length() < size) {
            text.append((char) ('a' + text.length() % 26));
        }
        return text.toString().getBytes(StandardCharsets.US_ASCII);
    }

    private static int number(Map<String, String> options, String name, int fallback) {
        return Integer.parseInt(options.getOrDefault(name, Integer.toString(fallback)));
    }
}
