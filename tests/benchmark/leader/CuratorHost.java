import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator as a contender: several LeaderLatches on one client. It reads commands from standard input; they are
 * those of python_host.py.
 */
public final class CuratorHost {
    private static final PrintStream OUT = System.out;

    private final Map<String, LeaderLatch> latches = new ConcurrentHashMap<>();
    private final CuratorFramework client;
    private final String path;

    private CuratorHost(CuratorFramework client, String path) {
        this.client = client;
        this.path = path;
    }

    public static void main(String[] arguments) throws Exception {
        int sessionMs = Integer.parseInt(arguments[2]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                arguments[0], sessionMs, 2000, new ExponentialBackoffRetry(100, 3));
        client.start();
        client.blockUntilConnected();
        CuratorHost host = new CuratorHost(client, arguments[1]);
        say("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("quit")) {
                break;
            }
            host.run(line.split(" "));
        }
        client.close();
        System.exit(0);
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "clock":
                say("clock " + System.nanoTime());
                break;
            case "join":
                join(words[1]);
                break;
            case "close":
                close(words[1]);
                break;
            default:
                say("error unknown command " + words[0]);
        }
    }

    private void join(String participant) throws Exception {
        LeaderLatch latch = new LeaderLatch(client, path, participant);
        latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                long now = System.nanoTime();
                say("leads " + participant + " " + now + " 0");
            }

            @Override
            public void notLeader() {
                // A latch that is closed does not call this, and nothing else ends leadership in this benchmark.
            }
        });
        latches.put(participant, latch);
        latch.start();
    }

    private void close(String participant) throws Exception {
        LeaderLatch latch = latches.remove(participant);
        long called = System.nanoTime();
        latch.close();
        say("closed " + participant + " " + called + " " + System.nanoTime());
    }

    private static void say(String line) {
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }
}
