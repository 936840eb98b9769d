// Load with RocketMQ's own client: synchronous sends, synchronous batches, pulls, a push consumer. Prints one JSON line with the rate.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

public final class RocketLoad {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        try {
            switch (arguments[0]) {
                case "send" -> send(options);
                case "pull" -> pull(options);
                case "push" -> push(options);
                default -> throw new IllegalArgumentException(arguments[0]);
            }
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    /**
     * Threads share one producer, as RocketMQ's own benchmark does; batch 1 sends single messages. With --rate, request i
     * is due i / rate seconds after the start, and its latency counts from then.
     */
    private static void send(Map<String, String> options) throws Exception {
        int threads = number(options, "threads", 64);
        int batch = number(options, "batch", 1);
        long warmup = number(options, "warmup", 20_000);
        long count = number(options, "count", 100_000);
        byte[] body = body(number(options, "size", 1024));
        String topic = options.get("topic");
        DefaultMQProducer producer = new DefaultMQProducer("load_producer");
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setSendMsgTimeout(30_000);
        producer.setDefaultTopicQueueNums(4);
        producer.start();
        double rate = Double.parseDouble(options.getOrDefault("rate", "0"));
        run(producer, topic, body, batch, threads, warmup, rate, null);
        long[] latencies = new long[(int) Math.ceil((double) count / batch) + threads];
        AtomicLong requests = new AtomicLong();
        long begin = System.nanoTime();
        long sent = run(producer, topic, body, batch, threads, count, rate, micros -> {
            latencies[(int) requests.getAndIncrement()] = micros;
        });
        report(sent, System.nanoTime() - begin, Arrays.copyOf(latencies, (int) requests.get()));
        producer.shutdown();
    }

    private interface Latency {
        void add(long micros);
    }

    private static long run(DefaultMQProducer producer, String topic, byte[] body, int batch, int threads, long count,
            double rate, Latency latency) throws Exception {
        AtomicLong next = new AtomicLong();
        AtomicLong sent = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        CountDownLatch done = new CountDownLatch(threads);
        long started = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            new Thread(() -> {
                try {
                    while (failure.get() == null) {
                        long index = next.getAndAdd(batch);
                        if (index >= count) {
                            break;
                        }
                        long begin = rate > 0 ? started + (long) (index * 1e9 / rate) : System.nanoTime();
                        for (long wait = begin - System.nanoTime(); wait > 0; wait = begin - System.nanoTime()) {
                            LockSupport.parkNanos(wait);
                        }
                        SendStatus status;
                        if (batch == 1) {
                            status = producer.send(new Message(topic, body)).getSendStatus();
                        } else {
                            List<Message> messages = new ArrayList<>(batch);
                            for (int j = 0; j < batch; j++) {
                                messages.add(new Message(topic, body));
                            }
                            status = producer.send(messages).getSendStatus();
                        }
                        if (status != SendStatus.SEND_OK) {
                            throw new IllegalStateException(status.name());
                        }
                        sent.addAndGet(batch);
                        if (latency != null) {
                            latency.add((System.nanoTime() - begin) / 1000);
                        }
                    }
                } catch (Throwable thrown) {
                    failure.compareAndSet(null, thrown);
                } finally {
                    done.countDown();
                }
            }).start();
        }
        done.await();
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return sent.get();
    }

    /** Pulls every queue of a topic once, queue after queue, max messages a pull. */
    private static void pull(Map<String, String> options) throws Exception {
        int max = number(options, "max", 32);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("load_consumer");
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.start();
        long messages = 0;
        List<Long> latencies = new ArrayList<>();
        long begin = System.nanoTime();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(options.get("topic"))) {
            long end = consumer.maxOffset(queue);
            long next = consumer.minOffset(queue);
            while (next < end) {
                long before = System.nanoTime();
                PullResult result = consumer.pull(queue, "*", next, max);
                if (result.getMsgFoundList() == null) {
                    throw new IllegalStateException(result.toString());
                }
                messages += result.getMsgFoundList().size();
                next = result.getNextBeginOffset();
                latencies.add((System.nanoTime() - before) / 1000);
            }
        }
        report(messages, System.nanoTime() - begin, latencies.stream().mapToLong(Long::longValue).toArray());
        consumer.shutdown();
    }

    /** A new group with a push consumer's defaults; a call waits for so many ms. From the first call to the end of the last. */
    private static void push(Map<String, String> options) throws Exception {
        int count = number(options, "count", 10_000);
        int wait = number(options, "wait", 100);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("load_push_" + System.currentTimeMillis());
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.get("topic"), "*");
        AtomicLong begin = new AtomicLong();
        AtomicLong calls = new AtomicLong();
        long[] latencies = new long[count];
        CountDownLatch done = new CountDownLatch(count);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long before = System.nanoTime();
            begin.compareAndSet(0, before);
            LockSupport.parkNanos(wait * 1_000_000L);
            int call = (int) calls.getAndIncrement();
            if (call < count) {
                latencies[call] = (System.nanoTime() - before) / 1000;
            }
            done.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        report(count, System.nanoTime() - begin.get(), latencies);
        consumer.shutdown();
    }

    private static void report(long messages, long nanos, long[] latencies) {
        Arrays.sort(latencies);
        double seconds = nanos / 1e9;
        System.out.printf("%n{\"messages\":%d,\"seconds\":%.6f,\"rate\":%.1f,\"p50_us\":%d,\"p99_us\":%d,\"p999_us\":%d}%n",
                messages, seconds, messages / seconds, at(latencies, 500), at(latencies, 990), at(latencies, 999));
    }

    private static long at(long[] sorted, int perMille) {
        return sorted[(int) ((sorted.length - 1L) * perMille / 1000)];
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
