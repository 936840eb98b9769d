// What the compatibility tests ask of RocketMQ's own client: produce, dump every queue, query by key, offsets.
// Prints one JSON object per line on stdout; RocketMQ's logs go to files below -Duser.home. A failure exits with 1.

import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import java.util.TreeMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public final class RocketTool {
    private static final PrintStream OUT =
            new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        try {
            switch (arguments[0]) {
                case "produce" -> produce(options);
                case "dump" -> dump(options);
                case "query" -> query(options);
                case "offsets" -> offsets(options);
                case "topics" -> topics(options);
                case "ids" -> ids(options);
                default -> throw new IllegalArgumentException(arguments[0]);
            }
            OUT.flush();
            System.exit(0);
        } catch (Exception failure) {
            OUT.flush();
            failure.printStackTrace();
            System.exit(1);
        }
    }

    /** Sends count messages round the topics; every delay-every-th delayed, every batch-every-th a batch of five. */
    private static void produce(Map<String, String> options) throws Exception {
        String[] topics = options.get("topics").split(",");
        int first = number(options, "first", 0);
        int count = number(options, "count", 100);
        int size = number(options, "size", 100);
        int delayEvery = number(options, "delay-every", 0);
        int batchEvery = number(options, "batch-every", 0);
        DefaultMQProducer producer = new DefaultMQProducer("tool_producer");
        producer.setNamesrvAddr(options.get("namesrv"));
        producer.setInstanceName("produce");
        producer.setSendMsgTimeout(10_000);
        producer.setDefaultTopicQueueNums(number(options, "queues", 4));
        producer.setCompressMsgBodyOverHowmuch(number(options, "compress-over", 4096));
        producer.start();
        int sent = 0;
        while (sent < count) {
            String topic = topics[(first + sent) % topics.length];
            if (batchEvery > 0 && sent % batchEvery == batchEvery - 1) {
                List<Message> batch = new ArrayList<>();
                for (int i = 0; i < 5 && sent < count; i++) {
                    batch.add(message(topic, first + sent++, size));
                }
                print(producer.send(batch), batch);
            } else {
                Message message = message(topic, first + sent, size);
                if (delayEvery > 0 && sent % delayEvery == delayEvery - 1) {
                    message.setDelayTimeLevel(1);
                }
                sent++;
                print(producer.send(message), List.of(message));
            }
        }
        producer.shutdown();
    }

    private static Message message(String topic, int number, int size) {
        StringBuilder body = new StringBuilder("body " + number + " \u00e4\u4e2d ");
        while (body.length() < size) {
            body.append((char) ('a' + body.length() % 26));
        }
        Message message = new Message(topic, "tag" + number % 7, "key" + number + " shared" + number % 10,
                body.toString().getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("number", Integer.toString(number));
        return message;
    }

    private static void print(SendResult result, List<Message> messages) {
        for (Message message : messages) {
            Map<String, Object> row = new TreeMap<>();
            row.put("status", result.getSendStatus().name());
            row.put("topic", message.getTopic());
            row.put("queue_id", result.getMessageQueue().getQueueId());
            row.put("queue_offset", result.getQueueOffset());
            row.put("message_id", result.getMsgId());
            row.put("offset_message_id", result.getOffsetMsgId());
            row.put("keys", message.getKeys());
            row.put("tags", message.getTags());
            row.put("delay_level", message.getDelayTimeLevel());
            row.put("body", Base64.getEncoder().encodeToString(message.getBody()));
            OUT.println(json(row));
        }
    }

    /** Pulls everything between min and max offset of every queue of the topics, once there are `at-least` messages. */
    private static void dump(Map<String, String> options) throws Exception {
        DefaultMQPullConsumer consumer = consumer(options);
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (messages(consumer, options) < number(options, "at-least", 0) && System.nanoTime() < deadline) {
            Thread.sleep(100);
        }
        for (String topic : options.get("topics").split(",")) {
            for (MessageQueue queue : queues(consumer, topic)) {
                long end = consumer.maxOffset(queue);
                long next = consumer.minOffset(queue);
                while (next < end) {
                    PullResult result = consumer.pull(queue, options.getOrDefault("tags", "*"), next, 64);
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        result.getMsgFoundList().forEach(RocketTool::print);
                    } else if (result.getNextBeginOffset() <= next) {
                        throw new IllegalStateException(queue + " at " + next + ": " + result);
                    }
                    next = result.getNextBeginOffset();
                }
            }
        }
        consumer.shutdown();
    }

    private static long messages(DefaultMQPullConsumer consumer, Map<String, String> options) throws Exception {
        long messages = 0;
        for (String topic : options.get("topics").split(",")) {
            for (MessageQueue queue : queues(consumer, topic)) {
                messages += consumer.maxOffset(queue) - consumer.minOffset(queue);
            }
        }
        return messages;
    }

    private static void offsets(Map<String, String> options) throws Exception {
        DefaultMQPullConsumer consumer = consumer(options);
        for (String topic : options.get("topics").split(",")) {
            for (MessageQueue queue : queues(consumer, topic)) {
                Map<String, Object> row = new TreeMap<>();
                row.put("topic", topic);
                row.put("queue_id", queue.getQueueId());
                row.put("min_offset", consumer.minOffset(queue));
                row.put("max_offset", consumer.maxOffset(queue));
                OUT.println(json(row));
            }
        }
        consumer.shutdown();
    }

    private static void query(Map<String, String> options) throws Exception {
        DefaultMQAdminExt admin = admin(options);
        for (String key : options.get("keys").split(",")) {
            QueryResult found = admin.queryMessage(options.get("topic"), key, 64, 0, Long.MAX_VALUE);
            found.getMessageList().forEach(RocketTool::print);
        }
        admin.shutdown();
    }

    private static void topics(Map<String, String> options) throws Exception {
        DefaultMQAdminExt admin = admin(options);
        Map<String, Object> row = new TreeMap<>();
        for (String topic : admin.fetchAllTopicList().getTopicList()) {
            row.clear();
            row.put("topic", topic);
            OUT.println(json(row));
        }
        admin.shutdown();
    }

    /** What RocketMQ reads out of message ids: host and time, the month beginning in UTC. */
    private static void ids(Map<String, String> options) {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        for (String id : options.get("ids").split(",")) {
            Map<String, Object> row = new TreeMap<>();
            row.put("message_id", id);
            row.put("host", MessageClientIDSetter.getIPStrFromID(id));
            row.put("time", MessageClientIDSetter.getNearlyTimeFromID(id).getTime());
            OUT.println(json(row));
        }
    }

    private static DefaultMQAdminExt admin(Map<String, String> options) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000L);
        admin.setNamesrvAddr(options.get("namesrv"));
        admin.setInstanceName("admin");
        admin.start();
        return admin;
    }

    private static DefaultMQPullConsumer consumer(Map<String, String> options) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("tool_consumer");
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setInstanceName("dump");
        consumer.start();
        return consumer;
    }

    private static List<MessageQueue> queues(DefaultMQPullConsumer consumer, String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
        queues.sort(Comparator.comparingInt(MessageQueue::getQueueId));
        return queues;
    }

    private static void print(MessageExt message) {
        Map<String, Object> row = new TreeMap<>();
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("physical_offset", message.getCommitLogOffset());
        row.put("message_id", message.getMsgId());
        row.put("keys", message.getKeys());
        row.put("tags", message.getTags());
        row.put("flag", message.getFlag());
        row.put("reconsume_times", message.getReconsumeTimes());
        row.put("born_timestamp", message.getBornTimestamp());
        row.put("store_timestamp", message.getStoreTimestamp());
        row.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        row.put("properties", new TreeMap<>(message.getProperties()));
        OUT.println(json(row));
    }

    private static int number(Map<String, String> options, String name, int fallback) {
        return Integer.parseInt(options.getOrDefault(name, Integer.toString(fallback)));
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        StringBuilder text = new StringBuilder();
        if (value instanceof Map<?, ?> map) {
            text.append('{');
            map.forEach((name, inner) -> {
                text.append(text.length() > 1 ? "," : "").append(json(name)).append(':').append(json(inner));
            });
            return text.append('}').toString();
        }
        text.append('"');
        for (char c : value.toString().toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < 0x20) {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append('"').toString();
    }
}
