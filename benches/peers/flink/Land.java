import java.util.Locale;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.util.EnvironmentInformation;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/**
 * Lands a Kafka topic as Parquet with Flink SQL in streaming mode, several times in one warm process.
 *
 * <p>Land BROKERS TOPIC FOLDER CASE RUNS: a line of JSON on stdout for each run, with the seconds that it took.
 */
public class Land {
    private static final String COLUMNS =
            "sensor_id STRING, ts TIMESTAMP_LTZ(3), temperature DOUBLE, humidity DOUBLE, status STRING, seq BIGINT";

    public static void main(String[] args) throws Exception {
        String brokers = args[0], topic = args[1], folder = args[2], kind = args[3];
        boolean raw = kind.equals("raw");
        for (int run = 0; run < Integer.parseInt(args[4]); run++) {
            long begun = System.nanoTime();
            Configuration settings = new Configuration();
            settings.setString("parallelism.default", "2");
            // Files are shown by checkpoints, as batches are by commits.
            settings.setString("execution.checkpointing.interval", "10 s");
            settings.setString("execution.checkpointing.dir", "file://" + folder + "/checkpoint-" + run);
            settings.setString("table.local-time-zone", "UTC");
            TableEnvironment tables =
                    TableEnvironment.create(
                            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
            String columns = raw
                    ? "`value` BYTES, `partition` INT METADATA VIRTUAL, `offset` BIGINT METADATA VIRTUAL"
                    : COLUMNS;
            String format = raw
                    ? "'value.format' = 'raw'"
                    : "'value.format' = 'json', 'value.json.timestamp-format.standard' = 'ISO-8601'";
            tables.executeSql(
                    "CREATE TABLE messages (" + columns + ") WITH ('connector' = 'kafka', 'topic' = '" + topic
                            + "', 'properties.bootstrap.servers' = '" + brokers
                            + "', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', "
                            + format + ")");
            String table = folder + "/table-" + run;
            String stored = raw ? "`value` BYTES, `partition` INT, `offset` BIGINT" : COLUMNS;
            tables.executeSql(
                    "CREATE TABLE landed (" + stored + ") WITH ('connector' = 'filesystem', 'path' = 'file://" + table
                            + "', 'format' = 'parquet')");
            tables.executeSql("INSERT INTO landed SELECT * FROM messages").await();
            double seconds = (System.nanoTime() - begun) / 1e9;
            System.out.println(String.format(Locale.ROOT, "{\"version\":\"%s\",\"seconds\":%.3f,\"table\":\"%s\"}",
                    EnvironmentInformation.getVersion(), seconds, table));
            System.out.flush();
        }
    }
}
