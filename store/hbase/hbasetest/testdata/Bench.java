import java.io.*;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.*;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.filter.*;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * What HBase's own Java client costs on the cells of bench.go, which says what they are. It is run as a single source
 * file, with the cluster's configuration and jars in the class path, and reads commands from standard input, a line
 * each:
 *
 *   put TABLE FROM TO THREADS BATCH    stores cells FROM to TO (exclusive), each thread BATCH of them at a time
 *   scan TABLE SCANNERS [REGEX]        reads all cells, or those of the rows that match; with more than one scanner
 *                                      each reads a region; the expression is in hexadecimal
 *   get TABLE ROWS ROUNDS              reads rows by their keys, ROWS at a time; round r has the series r, r + ROUNDS
 *                                      and so on
 *   check TABLE                        compares all cells with what they should be
 *
 * The answer to each is "ok 1" and the line "CELLS SUM WALL CPU ALLOCATED": the number of cells, the sum of their
 * values, the time from beginning to end, the CPU time of all threads of this process, both in nanoseconds, and the
 * bytes of memory that the threads have taken from the heap, but for those that ended in the meantime; or it is "error"
 * and what was wrong on the same line.
 */
public class Bench {
  static final int SERIES = 100_000, POINTS = 10, REGIONS = 8;
  static final byte[] FAMILY = {'t'};

  /** Where jobs run. Its threads stay, so that what they have allocated can be asked for. */
  static final ExecutorService THREADS = Executors.newCachedThreadPool(job -> {
    Thread thread = new Thread(job);
    thread.setDaemon(true);
    return thread;
  });

  /** What a command has handled. */
  static class Count {
    long cells, sum;

    synchronized void add(long cells, long sum) {
      this.cells += cells;
      this.sum += sum;
    }
  }

  interface Job {
    void run() throws IOException;
  }

  public static void main(String[] args) throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, "US-ASCII");
    Configuration conf = HBaseConfiguration.create();
    conf.setInt("hbase.client.operation.timeout", 120_000); // Rather than twenty minutes.
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      for (String line; (line = in.readLine()) != null; out.flush()) {
        try {
          Count count = new Count();
          long wall = System.nanoTime(), cpu = cpuTime(), allocated = allocated();
          run(connection, line.split(" "), count);
          wall = System.nanoTime() - wall;
          cpu = cpuTime() - cpu;
          allocated = allocated() - allocated;
          out.println("ok 1");
          out.println(count.cells + " " + count.sum + " " + wall + " " + cpu + " " + Math.max(allocated, 0));
        } catch (Exception e) {
          e.printStackTrace();
          out.println("error " + e.toString().replace('\n', ' '));
        }
      }
    }
  }

  static long cpuTime() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  static long allocated() {
    com.sun.management.ThreadMXBean threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    long sum = 0;
    for (long bytes : threads.getThreadAllocatedBytes(threads.getAllThreadIds())) {
      sum += Math.max(bytes, 0); // It is -1 for a thread that has just ended.
    }
    return sum;
  }

  static void run(Connection connection, String[] words, Count count) throws Exception {
    TableName table = TableName.valueOf(words[1]);
    switch (words[0]) {
      case "put":
        put(connection, table, Integer.parseInt(words[2]), Integer.parseInt(words[3]), Integer.parseInt(words[4]),
            Integer.parseInt(words[5]), count);
        break;
      case "scan":
        scan(connection, table, Integer.parseInt(words[2]), words.length > 3 ? words[3] : "", count);
        break;
      case "get":
        get(connection, table, Integer.parseInt(words[2]), Integer.parseInt(words[3]), count);
        break;
      case "check":
        check(connection, table, count);
        break;
      default:
        throw new IllegalArgumentException("no command " + words[0]);
    }
  }

  static void put(Connection connection, TableName name, int from, int to, int threads, int batch, Count count)
      throws Exception {
    AtomicInteger next = new AtomicInteger(from);
    List<Job> jobs = new ArrayList<>();
    for (int i = 0; i < threads; i++) {
      jobs.add(() -> {
        try (Table table = connection.getTable(name)) {
          for (int n; (n = next.getAndAdd(batch)) < to;) {
            List<Put> puts = new ArrayList<>(batch);
            long sum = 0;
            for (int end = Math.min(n + batch, to); n < end; n++) {
              int point = n / SERIES;
              puts.add(new Put(row(n % SERIES)).addColumn(FAMILY, Bytes.toBytes(point), timestamp(point),
                  Bytes.toBytes((long) n)));
              sum += n;
            }
            int size = puts.size(); // The client takes from the list what it has stored.
            table.put(puts);
            count.add(size, sum);
          }
        }
      });
    }
    together(jobs);
  }

  static void scan(Connection connection, TableName name, int scanners, String regex, Count count) throws Exception {
    List<Job> jobs = new ArrayList<>();
    for (int i = 0; i < scanners; i++) {
      Scan scan = new Scan();
      if (scanners > 1) {
        scan.withStartRow(i == 0 ? HConstants.EMPTY_START_ROW : new byte[] {(byte) i});
        scan.withStopRow(i == REGIONS - 1 ? HConstants.EMPTY_END_ROW : new byte[] {(byte) (i + 1)});
      }
      if (!regex.isEmpty()) {
        RegexStringComparator comparator = new RegexStringComparator(
            new String(Bytes.fromHex(regex), StandardCharsets.ISO_8859_1), Pattern.DOTALL);
        comparator.setCharset(StandardCharsets.ISO_8859_1);
        scan.setFilter(new RowFilter(CompareOperator.EQUAL, comparator));
      }
      jobs.add(() -> {
        try (Table table = connection.getTable(name); ResultScanner rows = table.getScanner(scan)) {
          for (Result row : rows) {
            add(row, count);
          }
        }
      });
    }
    together(jobs);
  }

  static void get(Connection connection, TableName name, int rows, int rounds, Count count) throws IOException {
    try (Table table = connection.getTable(name)) {
      for (int round = 0; round < rounds; round++) {
        List<Get> gets = new ArrayList<>(rows);
        for (int i = 0; i < rows; i++) {
          gets.add(new Get(row(round + i * rounds)));
        }
        for (Result row : table.get(gets)) {
          add(row, count);
        }
      }
    }
  }

  static void add(Result row, Count count) {
    Cell[] cells = row.rawCells();
    long sum = 0;
    for (Cell cell : cells) {
      sum += Bytes.toLong(cell.getValueArray(), cell.getValueOffset());
    }
    count.add(cells.length, sum);
  }

  static void check(Connection connection, TableName name, Count count) throws IOException {
    BitSet seen = new BitSet();
    try (Table table = connection.getTable(name); ResultScanner rows = table.getScanner(new Scan())) {
      for (Result row : rows) {
        add(row, count);
        for (Cell cell : row.rawCells()) {
          long n = Bytes.toLong(cell.getValueArray(), cell.getValueOffset());
          boolean right = n >= 0 && n < SERIES * POINTS && cell.getValueLength() == 8;
          if (right) {
            int point = (int) n / SERIES;
            right = Arrays.equals(CellUtil.cloneRow(cell), row((int) n % SERIES))
                && CellUtil.matchingFamily(cell, FAMILY)
                && Arrays.equals(CellUtil.cloneQualifier(cell), Bytes.toBytes(point))
                && cell.getTimestamp() == timestamp(point) && !seen.get((int) n);
            seen.set((int) n);
          }
          if (!right) {
            throw new IllegalStateException("wrong cell " + cell + " with value " + n);
          }
        }
      }
    }
  }

  static byte[] row(int series) {
    ByteBuffer row = ByteBuffer.allocate(43);
    row.put((byte) (series % REGIONS)).putLong(series * 0x9E3779B97F4A7C15L).put((byte) (series / REGIONS % 100));
    while (row.remaining() > 4) {
      row.put((byte) 'f');
    }
    return row.putInt(series).array();
  }

  static long timestamp(int point) { return 1_700_000_000_000L + point * 15_000; }

  /** Runs jobs side by side; the first that fails has the word. */
  static void together(List<Job> jobs) throws Exception {
    List<Future<Void>> ends = new ArrayList<>();
    for (Job job : jobs) {
      ends.add(THREADS.submit((Callable<Void>) () -> {
        job.run();
        return null;
      }));
    }
    for (Future<Void> end : ends) {
      end.get();
    }
  }
}
