import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.*;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * HBase's own Java client at the disposal of a test. It is run as a single source file, with the cluster's
 * configuration and jars in the class path, and reads commands from standard input, a line each:
 *
 *   create TABLE FAMILY,FAMILY [SPLIT,SPLIT]   makes a table whose families keep one version
 *   put TABLE N                                stores the cells of the N lines that follow
 *   scan TABLE                                 reads all cells
 *   reads TABLE                                counts the rows that its regions have met for gets and scans
 *
 * The answer to each is "ok N" and N lines, the cells of a scan or the count, or "error" and what was wrong on the same line.
 *
 * A cell is a line "ROW FAMILY QUALIFIER TIMESTAMP VALUE", all but the timestamp in hexadecimal, with "-" for no bytes.
 * A put with the timestamp -1 takes the server's clock. Splits are in hexadecimal too.
 */
public class Client {
  public static void main(String[] args) throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, "US-ASCII");
    Configuration conf = HBaseConfiguration.create();
    conf.setInt("hbase.client.operation.timeout", 120_000); // Rather than twenty minutes.
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      for (String line; (line = in.readLine()) != null; out.flush()) {
        try {
          List<String> answer = run(connection, line.split(" "), in);
          out.println("ok " + answer.size());
          answer.forEach(out::println);
        } catch (IOException | RuntimeException e) {
          e.printStackTrace();
          out.println("error " + e.toString().replace('\n', ' '));
        }
      }
    }
  }

  static List<String> run(Connection connection, String[] words, BufferedReader in) throws IOException {
    TableName table = TableName.valueOf(words[1]);
    switch (words[0]) {
      case "create":
        return create(connection, table, words[2].split(","), words.length > 3 ? words[3].split(",") : new String[0]);
      case "put":
        List<Put> puts = new ArrayList<>();
        for (int n = Integer.parseInt(words[2]); n > 0; n--) {
          puts.add(parsePut(in.readLine().split(" ")));
        }
        return put(connection, table, puts);
      case "scan":
        return scan(connection, table);
      case "reads":
        return reads(connection, table);
      default:
        throw new IllegalArgumentException("no command " + words[0]);
    }
  }

  static List<String> create(Connection connection, TableName name, String[] families, String[] splits)
      throws IOException {
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(name);
    for (String family : families) {
      table.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(Bytes.toBytes(family)).setMaxVersions(1).build());
    }
    try (Admin admin = connection.getAdmin()) {
      admin.createTable(table.build(), // which takes null for no splits, and nothing shorter than one
          splits.length == 0 ? null : Arrays.stream(splits).map(Client::bytes).toArray(byte[][]::new));
    }
    return Collections.emptyList();
  }

  static List<String> put(Connection connection, TableName name, List<Put> puts) throws IOException {
    try (BufferedMutator table = connection.getBufferedMutator(name)) {
      table.mutate(puts);
    } // Closing flushes, and throws if anything was refused.
    return Collections.emptyList();
  }

  static List<String> scan(Connection connection, TableName name) throws IOException {
    List<String> cells = new ArrayList<>();
    try (Table table = connection.getTable(name); ResultScanner rows = table.getScanner(new Scan().setCaching(1000))) {
      for (Result row : rows) {
        for (Cell cell : row.rawCells()) {
          cells.add(hex(CellUtil.cloneRow(cell)) + " " + hex(CellUtil.cloneFamily(cell)) + " "
              + hex(CellUtil.cloneQualifier(cell)) + " " + cell.getTimestamp() + " " + hex(CellUtil.cloneValue(cell)));
        }
      }
    }
    return cells;
  }

  static List<String> reads(Connection connection, TableName table) throws IOException {
    long rows = 0;
    try (Admin admin = connection.getAdmin()) {
      for (ServerName server : admin.getRegionServers()) {
        for (RegionMetrics region : admin.getRegionMetrics(server, table)) {
          rows += region.getReadRequestCount() + region.getFilteredReadRequestCount();
        }
      }
    }
    return Collections.singletonList(Long.toString(rows));
  }

  static Put parsePut(String[] words) {
    long timestamp = Long.parseLong(words[3]);
    return new Put(bytes(words[0])).addColumn(bytes(words[1]), bytes(words[2]),
        timestamp < 0 ? HConstants.LATEST_TIMESTAMP : timestamp, bytes(words[4]));
  }

  static byte[] bytes(String hex) { return hex.equals("-") ? new byte[0] : Bytes.fromHex(hex); }

  static String hex(byte[] bytes) { return bytes.length == 0 ? "-" : Bytes.toHex(bytes); }
}
