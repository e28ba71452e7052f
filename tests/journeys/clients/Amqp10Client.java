import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.AdvancedMessage;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientException;
import org.apache.qpid.protonj2.types.Binary;
import org.apache.qpid.protonj2.types.Decimal64;
import org.apache.qpid.protonj2.types.Symbol;
import org.apache.qpid.protonj2.types.UnsignedByte;
import org.apache.qpid.protonj2.types.UnsignedInteger;
import org.apache.qpid.protonj2.types.UnsignedLong;
import org.apache.qpid.protonj2.types.UnsignedShort;
import org.apache.qpid.protonj2.types.messaging.AmqpSequence;
import org.apache.qpid.protonj2.types.messaging.AmqpValue;
import org.apache.qpid.protonj2.types.messaging.Data;
import org.apache.qpid.protonj2.types.messaging.Section;

/**
 * Apache Qpid's client of AMQP 1.0: sends messages of all kinds to one address, and receives from another.
 *
 * <p>Arguments: HOST PORT TARGET SOURCE COUNT, then user, password and virtual host of the sender, those of the
 * receiver, and the names of the messages to send, of all if none is given. With find:NAME for COUNT the message of
 * that name alone is taken. Prints a line for each part of each message: "sent" or "got", name of the message, part,
 * type, value, with tabulators between.
 */
public final class Amqp10Client {
    private static final long WITHIN_S = 20;

    public static void main(String[] words) throws Exception {
        String host = words[0];
        int port = Integer.parseInt(words[1]);
        try (Client client = Client.create();
                Connection to = client.connect(host, port, new Login(words, 8))) {
            Receiver receiver = to.openReceiver(words[3], new ReceiverOptions().autoAccept(false));
            receiver.openFuture().get(WITHIN_S, TimeUnit.SECONDS);
            Connection from = null;
            Sender sender = null;
            List<String> wanted = Arrays.asList(words).subList(11, words.length);
            for (Map.Entry<String, AdvancedMessage<Object>> one : messages().entrySet()) {
                if (!wanted.isEmpty() && !wanted.contains(one.getKey())) {
                    continue;
                }
                show("sent", one.getKey(), one.getValue());
                if (from == null) {
                    from = client.connect(host, port, new Login(words, 5));
                    sender = from.openSender(words[2]);
                }
                try {
                    Tracker tracker = sender.send(one.getValue());
                    tracker.settlementFuture().get(WITHIN_S, TimeUnit.SECONDS);
                    line("sent", one.getKey(), "outcome", tracker.remoteState().getType());
                } catch (Exception error) {
                    // The broker ended the connection: the next message goes over another.
                    line("sent", one.getKey(), "outcome", "FAILED");
                    from = null;
                }
            }
            if (words[4].startsWith("find:")) {
                take(receiver, words[4].substring(5));
                return;
            }
            for (int left = Integer.parseInt(words[4]); left > 0; left--) {
                Delivery delivery = receiver.receive(WITHIN_S, TimeUnit.SECONDS);
                if (delivery == null) {
                    line("got", "", "missing", left);
                    break;
                }
                show("got", delivery);
                delivery.accept();
            }
        }
    }

    /** Accept the message of that name alone: all that come before it go back where they were. */
    private static void take(Receiver receiver, String name) throws Exception {
        List<Delivery> others = new ArrayList<>();
        Delivery delivery = receiver.receive(WITHIN_S, TimeUnit.SECONDS);
        while (delivery != null && !name.equals(show("got", delivery))) {
            others.add(delivery);
            delivery = receiver.receive(WITHIN_S, TimeUnit.SECONDS);
        }
        if (delivery == null) {
            line("got", "", "missing", name);
        } else {
            delivery.accept();
        }
        for (Delivery other : others) {
            other.release();
        }
    }

    /** Print a message; return its name, or "" where it has none or cannot be read. */
    private static String show(String which, Delivery delivery) throws Exception {
        try {
            AdvancedMessage<Object> message = delivery.<Object>message().toAdvancedMessage();
            Object name = message.property("case");
            show(which, name == null ? "" : name.toString(), message);
            return name == null ? "" : name.toString();
        } catch (ClientException error) {
            line(which, "", "unreadable", error.getMessage());
            return "";
        }
    }

    /** Options whose copy, which the client makes, keeps the virtual host. */
    private static final class Login extends ConnectionOptions {
        private final String vhost;

        Login(String[] words, int at) {
            user(words[at]).password(words[at + 1]);
            // Else the client takes the first that the broker names, which is ANONYMOUS.
            saslOptions().addAllowedMechanism("PLAIN");
            vhost = "vhost:" + words[at + 2];
        }

        @Override
        protected ConnectionOptions copyInto(ConnectionOptions other) {
            return super.copyInto(other).virtualHost(vhost);
        }
    }

    private static Map<String, AdvancedMessage<Object>> messages() throws Exception {
        Map<String, AdvancedMessage<Object>> made = new LinkedHashMap<>();
        typed(made, "string", "nú 東京");
        typed(made, "true", true);
        typed(made, "false", false);
        typed(made, "ubyte", UnsignedByte.valueOf((byte) 200));
        typed(made, "ushort", UnsignedShort.valueOf((short) 60_000));
        typed(made, "uint", UnsignedInteger.valueOf(4_000_000_000L));
        typed(made, "ulong", UnsignedLong.valueOf(-1L));
        typed(made, "ulong-small", UnsignedLong.valueOf(7L));
        typed(made, "byte", (byte) -3);
        typed(made, "short", (short) -300);
        typed(made, "int", -70_000);
        typed(made, "long", Long.MIN_VALUE);
        typed(made, "float", 1.5f);
        typed(made, "double", -2.5e300);
        typed(made, "timestamp", new Date(1_700_000_000_123L));
        typed(made, "binary", new Binary(new byte[] {0, (byte) 255, 7}));
        typed(made, "symbol", Symbol.valueOf("sym"));
        typed(made, "null", null);
        typed(made, "char", 'x');
        typed(made, "uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"));
        typed(made, "decimal", new Decimal64(0x31c0000000000001L));

        AdvancedMessage<Object> annotated = add(made, "annotations");
        annotated.addBodySection(data("annotations"));
        annotated.annotation("x-text", "of the publisher");
        annotated.annotation("x-number", 42);
        annotated.annotation("x-list", List.of("a", "b"));
        AdvancedMessage<Object> plain = add(made, "annotation without x-");
        plain.addBodySection(data("plain"));
        plain.annotation("plain", "without x-");
        AdvancedMessage<Object> footed = add(made, "footer");
        footed.addBodySection(data("footer"));
        footed.footer("x-foot", "f");

        add(made, "data").addBodySection(data("bytes"));
        AdvancedMessage<Object> twice = add(made, "data twice");
        twice.addBodySection(data("one,"));
        twice.addBodySection(data("two"));
        add(made, "no body bytes").addBodySection(data(""));
        add(made, "value string").body("a string");
        add(made, "value map").body(new TreeMap<>(Map.of("k", 1, "l", List.of("m"))));
        add(made, "value list").addBodySection(new AmqpValue<>(List.of("a", 7)));
        add(made, "value null").addBodySection(new AmqpValue<>(null));
        add(made, "value binary").addBodySection(new AmqpValue<>(new Binary(new byte[] {1, 2})));
        add(made, "sequence").addBodySection(new AmqpSequence<>(List.of("a", 2)));

        AdvancedMessage<Object> header = add(made, "header");
        header.addBodySection(data("header"));
        header.durable(true).priority((byte) 7).timeToLive(86_400_000L);
        add(made, "no properties").addBodySection(data("no properties"));
        AdvancedMessage<Object> transientOne = add(made, "not durable");
        transientOne.addBodySection(data("not durable"));
        transientOne.durable(false).priority((byte) 1);

        AdvancedMessage<Object> properties = add(made, "properties");
        properties.addBodySection(data("properties"));
        properties.messageId("order 4711").correlationId("request 12");
        properties.replyTo("/queues/answers").contentType("application/json").contentEncoding("gzip");
        properties.creationTime(1_700_000_000_123L).absoluteExpiryTime(4_000_000_000_000L);
        properties.groupId("group").groupSequence(3).replyToGroupId("answers of the group");
        properties.to("/exchanges/amqp10/ones.any");

        id(made, "id uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddee01"));
        id(made, "id ulong", UnsignedLong.valueOf(4711L));
        id(made, "id binary", new Binary(new byte[] {(byte) 200, 1, 2}));
        id(made, "id string uuid", "00112233-4455-6677-8899-aabbccddee02");
        id(made, "again uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddee03"));
        id(made, "again string uuid", "00112233-4455-6677-8899-aabbccddee04");
        return made;
    }

    private static AdvancedMessage<Object> add(Map<String, AdvancedMessage<Object>> made, String name)
            throws Exception {
        AdvancedMessage<Object> message = AdvancedMessage.create();
        message.property("case", name);
        if (!name.equals("no properties")) {
            message.subject(name);
        }
        made.put(name, message);
        return message;
    }

    private static void typed(Map<String, AdvancedMessage<Object>> made, String type, Object value) throws Exception {
        add(made, "type " + type).property("value", value).body(type);
    }

    private static void id(Map<String, AdvancedMessage<Object>> made, String name, Object value) throws Exception {
        AdvancedMessage<Object> message = add(made, name);
        message.addBodySection(data(name));
        message.messageId(value).correlationId(value);
    }

    private static Section<byte[]> data(String text) {
        return new Data(text.getBytes());
    }

    private static void show(String which, String name, AdvancedMessage<Object> message) throws Exception {
        if (message.header() != null) {
            line(which, name, "durable", message.durable());
            line(which, name, "priority", message.priority());
            line(which, name, "ttl", message.timeToLive());
        }
        if (message.annotations() != null && message.annotations().getValue() != null) {
            for (Map.Entry<Symbol, Object> one : message.annotations().getValue().entrySet()) {
                line(which, name, "annotation " + one.getKey(), one.getValue());
            }
        }
        line(which, name, "message-id", message.messageId());
        line(which, name, "correlation-id", message.correlationId());
        line(which, name, "user-id", message.userId());
        line(which, name, "to", message.to());
        line(which, name, "subject", message.subject());
        line(which, name, "reply-to", message.replyTo());
        line(which, name, "content-type", message.contentType());
        line(which, name, "content-encoding", message.contentEncoding());
        line(which, name, "creation-time", message.creationTime());
        line(which, name, "absolute-expiry-time", message.absoluteExpiryTime());
        line(which, name, "group-id", message.groupId());
        line(which, name, "group-sequence", message.groupSequence());
        line(which, name, "reply-to-group-id", message.replyToGroupId());
        if (message.applicationProperties() != null && message.applicationProperties().getValue() != null) {
            for (Map.Entry<String, Object> one : message.applicationProperties().getValue().entrySet()) {
                line(which, name, "property " + one.getKey(), one.getValue());
            }
        }
        List<String> sections = new ArrayList<>();
        for (Section<?> section : message.bodySections()) {
            sections.add(section.getType().toString() + " " + text(section.getValue()));
        }
        line(which, name, "body", String.join("; ", sections));
        if (message.footer() != null && message.footer().getValue() != null) {
            for (Map.Entry<?, ?> one : message.footer().getValue().entrySet()) {
                line(which, name, "footer " + one.getKey(), one.getValue());
            }
        }
    }

    private static void line(String which, String name, String part, Object value) {
        String type = value == null ? "null" : value.getClass().getSimpleName();
        System.out.println(String.join("\t", which, name, part, type, text(value)));
    }

    private static String text(Object value) {
        if (value instanceof Binary) {
            return text(((Binary) value).asByteArray());
        }
        if (value instanceof byte[]) {
            StringBuilder hex = new StringBuilder();
            for (byte one : (byte[]) value) {
                hex.append(String.format("%02x", one));
            }
            return hex.toString();
        }
        if (value instanceof Date) {
            return Long.toString(((Date) value).getTime());
        }
        return String.valueOf(value);
    }
}
