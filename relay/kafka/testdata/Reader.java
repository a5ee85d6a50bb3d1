// Reads a topic from its beginning with the consumer of Kafka's own client, and prints a line for each record.
//
// Arguments: the address of a node, the topic, the number of records. An argument is never a secret.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

class Reader {
    public static void main(String[] args) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0],
            "group.id", "reader-of-" + args[1],
            "auto.offset.reset", "earliest",
            "isolation.level", "read_committed");
        int left = Integer.parseInt(args[2]);
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            while (left > 0) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(line(record));
                    left--;
                }
            }
            consumer.commitSync();
        }
    }

    private static String line(ConsumerRecord<String, String> record) {
        var headers = new TreeMap<String, String>();
        for (Header h : record.headers()) {
            headers.put(h.key(), new String(h.value(), StandardCharsets.UTF_8));
        }
        return record.key() + " " + record.value() + " " + headers;
    }
}
