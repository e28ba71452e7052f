import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DeliverCallback;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.LongString;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * RabbitMQ's client for Java: publishes at one site with confirms and mandatory, and consumes at another.
 *
 * <p>Arguments: URI of the publisher and of the consumer. Prints lines of fields with tabulators between: "sent" and
 * "got" with each header's name, class and value and each property, "confirmed", "returned"
 * with exchange and key, and "key" with the key of each message that came. The first message is sent twice.
 */
public final class RabbitClient {
    private static final long WITHIN_MS = 60_000;

    public static void main(String[] words) throws Exception {
        try (Connection from = connect(words[0]);
                Connection to = connect(words[1])) {
            BlockingQueue<Delivery> got = new LinkedBlockingQueue<>();
            Channel consuming = to.createChannel();
            String queue = consuming.queueDeclare().getQueue();
            consuming.queueBind(queue, "java", "java.#");
            DeliverCallback take = (tag, delivery) -> got.add(delivery);
            consuming.basicConsume(queue, true, take, tag -> {});

            Channel publishing = from.createChannel();
            BlockingQueue<String> returned = new LinkedBlockingQueue<>();
            publishing.addReturnListener(one -> returned.add(one.getExchange() + " " + one.getRoutingKey()));
            publishing.confirmSelect();
            AMQP.BasicProperties properties = properties();
            show("sent", properties);
            publishing.basicPublish("java", "java.types", true, properties, "typed".getBytes());
            publishing.basicPublish("java", "java.types", true, properties, "typed".getBytes());
            publishing.basicPublish("java", "java.last", true, null, "last".getBytes());
            publishing.basicPublish("java", "nobody.listens", true, null, new byte[0]);
            publishing.basicPublish("keyed", "java.leaves", true, null, new byte[0]);
            publishing.basicPublish("keyed", "stays", true, null, new byte[0]);
            publishing.waitForConfirmsOrDie(WITHIN_MS);
            System.out.println("confirmed");
            // A return comes before the confirm of its message.
            for (String one : returned) {
                System.out.println("returned\t" + one);
            }
            String key = "";
            while (!key.equals("java.last")) {
                Delivery arrived = got.poll(WITHIN_MS, TimeUnit.MILLISECONDS);
                if (arrived == null) {
                    throw new IllegalStateException("the last message did not come");
                }
                key = arrived.getEnvelope().getRoutingKey();
                System.out.println("key\t" + key);
                if (key.equals("java.types")) {
                    show("got", arrived.getProperties());
                }
            }
        }
    }

    private static Connection connect(String uri) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(uri);
        return factory.newConnection();
    }

    private static AMQP.BasicProperties properties() {
        Map<String, Object> headers = new LinkedHashMap<>();
        headers.put("integer", -70_000);
        headers.put("long", Long.MIN_VALUE);
        headers.put("short", (short) -300);
        headers.put("byte", (byte) -3);
        headers.put("decimal", new BigDecimal("314.15"));
        headers.put("date", new Date(1_700_000_000_000L));
        headers.put("map", Map.of("deep", Map.of("est", 1), "list", List.of(2L)));
        headers.put("list", Arrays.asList("a", 1, null, List.of(), Map.of()));
        headers.put("bytes", new byte[] {0, (byte) 255, 7});
        headers.put("boolean", true);
        headers.put("float", 1.5f);
        headers.put("double", -2.5e300);
        headers.put("null", null);
        headers.put("string", "nú 東京");
        headers.put("empty", "");
        return new AMQP.BasicProperties.Builder()
                .headers(headers)
                .contentType("application/json")
                .contentEncoding("UTF-8")
                .deliveryMode(2)
                .priority(5)
                .correlationId("request 12")
                .replyTo("answers")
                .messageId("00112233-4455-6677-8899-aabbccddee10")
                .timestamp(new Date(1_700_000_000_000L))
                .type("order")
                .appId("shop")
                .build();
    }

    private static void show(String which, AMQP.BasicProperties properties) {
        for (Map.Entry<String, Object> one : properties.getHeaders().entrySet()) {
            Object value = one.getValue();
            System.out.println(String.join("\t", which, "header", one.getKey(), type(value), text(value)));
        }
        Map<String, Object> others = new TreeMap<>();
        others.put("content-type", properties.getContentType());
        others.put("content-encoding", properties.getContentEncoding());
        others.put("delivery-mode", properties.getDeliveryMode());
        others.put("priority", properties.getPriority());
        others.put("correlation-id", properties.getCorrelationId());
        others.put("reply-to", properties.getReplyTo());
        others.put("expiration", properties.getExpiration());
        others.put("message-id", properties.getMessageId());
        others.put("timestamp", properties.getTimestamp());
        others.put("type", properties.getType());
        others.put("app-id", properties.getAppId());
        others.forEach((name, value) -> System.out.println(String.join("\t", which, "property", name, "", text(value))));
    }

    // Strings come as LongString, whose text is the same; classes of lists and maps are the client's own.
    private static String type(Object value) {
        return value == null ? "null"
                : value instanceof LongString ? "String"
                : value instanceof Map ? "Map"
                : value instanceof List ? "List"
                : value.getClass().getSimpleName();
    }

    private static String text(Object value) {
        if (value instanceof Map) {
            Map<String, String> parts = new TreeMap<>();
            ((Map<?, ?>) value).forEach((name, part) -> parts.put(name.toString(), type(part) + " " + text(part)));
            return parts.toString();
        }
        if (value instanceof List) {
            List<String> parts = new ArrayList<>();
            ((List<?>) value).forEach(part -> parts.add(type(part) + " " + text(part)));
            return parts.toString();
        }
        if (value instanceof byte[]) {
            return Arrays.toString((byte[]) value);
        }
        if (value instanceof Date) {
            return Long.toString(((Date) value).getTime());
        }
        return String.valueOf(value);
    }
}
