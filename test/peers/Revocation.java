import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertPathValidator;
import java.security.cert.CertPathValidatorException;
import java.security.cert.CertificateFactory;
import java.security.cert.PKIXParameters;
import java.security.cert.PKIXRevocationChecker;
import java.security.cert.PKIXRevocationChecker.Option;
import java.security.cert.TrustAnchor;
import java.security.cert.X509Certificate;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;

/**
 * Validates certificates with the PKIX validator of Java and the addresses in them: `AUTHORITY CERTIFICATE...`, all PEM.
 * Prints `good`, or the reason, for each certificate by OCSP and by the revocation list.
 */
class Revocation {
  public static void main(String[] args) throws Exception {
    System.setProperty("com.sun.security.enableCRLDP", "true");
    X509Certificate authority = read(args[0]);
    for (String file : List.of(args).subList(1, args.length)) {
      String name = Path.of(file).getFileName().toString();
      System.out.println(name + " ocsp " + check(authority, read(file), EnumSet.of(Option.NO_FALLBACK)));
      System.out.println(name + " crl " + check(authority, read(file), EnumSet.of(Option.PREFER_CRLS, Option.NO_FALLBACK)));
    }
  }

  static X509Certificate read(String file) throws Exception {
    try (InputStream in = Files.newInputStream(Path.of(file))) {
      return (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(in);
    }
  }

  static String check(X509Certificate authority, X509Certificate certificate, Set<Option> options) throws Exception {
    CertPathValidator validator = CertPathValidator.getInstance("PKIX");
    PKIXRevocationChecker checker = (PKIXRevocationChecker) validator.getRevocationChecker();
    checker.setOptions(options);
    PKIXParameters parameters = new PKIXParameters(Set.of(new TrustAnchor(authority, null)));
    parameters.addCertPathChecker(checker);
    try {
      validator.validate(CertificateFactory.getInstance("X.509").generateCertPath(List.of(certificate)), parameters);
      return "good";
    } catch (CertPathValidatorException refused) {
      return refused.getReason() + ": " + refused.getMessage();
    }
  }
}
