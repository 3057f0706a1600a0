// Observes a CoAP resource with Californium, and prints a line of JSON for each event.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapHandler;
import org.eclipse.californium.core.CoapObserveRelation;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.config.UdpConfig;

public final class Observe {
  private static String name = "first";

  /** The texts of the tests have no characters that JSON escapes. */
  private static synchronized void tell(String event, String rest) {
    System.out.println("{\"event\":\"" + event + "\"" + rest + "}");
    System.out.flush();
  }

  public static void main(String[] arguments) throws Exception {
    CoapConfig.register();
    UdpConfig.register();
    Configuration.setStandard(new Configuration());
    CoapClient client = new CoapClient(arguments[0]);
    CoapObserveRelation relation = client.observe(new CoapHandler() {
      @Override
      public void onLoad(CoapResponse response) {
        tell(name, ",\"code\":\"" + response.getCode() + "\",\"text\":\"" + response.getResponseText() + "\"");
        name = "message";
      }

      @Override
      public void onError() {
        tell("error", "");
      }
    });
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    // Until the test says so.
    input.readLine();
    relation.proactiveCancel();
    tell("cancelled", "");
    input.readLine();
    System.exit(0);
  }
}
