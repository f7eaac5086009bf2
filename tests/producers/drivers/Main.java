import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

/** Plays the story, beside Orders.java of the page. */
final class Main {
    public static void main(String[] arguments) throws SQLException {
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
            + System.getenv("PGDATABASE") + "?reWriteBatchedInserts=true";
        try (Connection connection = DriverManager.getConnection(url, System.getenv("PGUSER"), "")) {
            System.out.println(Orders.pay(connection, 42, "19.99", System.getenv("TRACEPARENT")));
            try {
                Orders.pay(connection, 13, "19.99", null);
                throw new IllegalStateException("order 13 was paid");
            } catch (SQLException refused) {
                if (!refused.getMessage().contains("refused at COMMIT")) {
                    throw refused;
                }
            }
            Orders.create(connection, new long[] {1001, 1002, 1003});
        }
    }
}
