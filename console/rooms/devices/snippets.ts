/** Programs that publish as a client, with the hosts and ports that the server answers. They name a variable if its secret is not given. */
import { shownBase } from '../../api/base.ts'
import { formatJson } from '../../api/json.ts'
import type { Addresses } from '../../api/operations.ts'

type Place = { domain: string; client: string; channel: string; secret: string | undefined }
export type Snippet = {
  readonly name: string
  readonly text: string
  /** What must be installed, or where the text belongs. */
  readonly hint: string
}

const RECORD = { n: 'temperature', u: 'Cel', v: 21.5 }
const PACK = formatJson([RECORD])
const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'mqtt:': '1883', 'mqtts:': '8883' }
/** The user replaces this in texts that are no shell commands. */
const PLACEHOLDER = 'SECRET'

/** A protocol that the installation does not speak has no snippet. */
export function snippetsFor(place: Place, addresses: Addresses): Snippet[] {
  const { mqtt, mqtts, coap } = addresses
  const base = httpBase(addresses)
  const broker = mqtt ?? mqtts
  return [
    { name: 'curl', text: curl(place, base), hint: 'Over HTTP, from a shell.' },
    ...(mqtt === undefined
      ? []
      : [{ name: 'mosquitto_pub', text: mosquitto(place, mqtt.url, []), hint: MOSQUITTO_HINT }]),
    ...(mqtts === undefined
      ? []
      : [{ name: 'mosquitto_pub with TLS', text: secureMosquitto(place, mqtts), hint: MOSQUITTO_HINT }]),
    ...(broker === undefined
      ? []
      : [{ name: 'Python', text: python(place, broker), hint: 'Over MQTT. Install paho-mqtt: pip install paho-mqtt' }]),
    ...(coap === undefined
      ? []
      : [
          {
            name: 'coap-client',
            text: coapClient(place, coap.url),
            hint: 'Over CoAP. Of libcoap: apt install libcoap3-bin',
          },
        ]),
    { name: 'Node.js', text: javascript(place, base), hint: 'Over HTTP. A file with the ending .mjs' },
    ...(broker === undefined
      ? []
      : [
          {
            name: 'Arduino, ESP32',
            text: arduino(place, broker),
            hint: 'Over MQTT. Install the library PubSubClient, and replace the name and the password of the network.',
          },
        ]),
    {
      name: 'Node-RED',
      text: nodeRed(place, base),
      hint: 'Over HTTP. Import it as a flow (Ctrl I), deploy, and press the button.',
    },
  ]
}

const MOSQUITTO_HINT = 'Over MQTT. Install it: apt install mosquitto-clients'

/** The address of this page keeps the path of a reverse proxy; another public host is what the operator set. */
function httpBase({ http }: Addresses): string {
  return new URL(http.url).host === new URL(shownBase).host ? shownBase : http.url
}

const shellQuoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`
const topicOf = ({ domain, channel }: Place) => `m/${domain}/c/${channel}`

const curl = ({ secret, ...place }: Place, base: string) =>
  [
    `curl -X POST "${base}/${topicOf({ ...place, secret })}" \\`,
    `  -H ${secret === undefined ? '"Authorization: Client $SECRET"' : shellQuoted(`Authorization: Client ${secret}`)} \\`,
    `  -H 'Content-Type: application/senml+json' \\`,
    `  -d '${PACK}'`,
  ].join('\n')

function hostAndPort(url: string): { host: string; port: string } {
  const { protocol, hostname, port } = new URL(url)
  return { host: hostname.replaceAll(/[[\]]/g, ''), port: port === '' ? (DEFAULT_PORTS[protocol] ?? '') : port }
}

function mosquitto(place: Place, url: string, options: readonly string[]): string {
  const { host, port } = hostAndPort(url)
  return [
    [`mosquitto_pub -h ${host} -p ${port}`, ...options, '-q 1 \\'].join(' '),
    `  -u ${place.client} -P ${place.secret === undefined ? '"$SECRET"' : shellQuoted(place.secret)} \\`,
    `  -t ${topicOf(place)} \\`,
    `  -m '${PACK}'`,
  ].join('\n')
}

/** `ca_url`: an authority of this installation, which devices do not know. */
type Broker = NonNullable<Addresses['mqtts']>

const isSecure = ({ url }: Broker) => url.startsWith('mqtts:')

function secureMosquitto(place: Place, { url, ca_url: authority }: Broker): string {
  if (authority === undefined) return mosquitto(place, url, ['--tls-use-os-certs'])
  return `curl -s "${authority}" -o ca.crt\n${mosquitto(place, url, ['--cafile ca.crt'])}`
}

function coapClient(place: Place, url: string): string {
  const target = `${url}/${topicOf(place)}?auth=`
  return [
    `${url.startsWith('coaps:') ? 'coap-client' : 'coap-client-notls'} -m post -t 110 \\`,
    `  ${place.secret === undefined ? `"${target}$SECRET"` : shellQuoted(target + encodeURIComponent(place.secret))} \\`,
    `  -e '${PACK}'`,
  ].join('\n')
}

/** JSON strings are literals of Python, JavaScript and C++. */
function python(place: Place, broker: Broker): string {
  const { host, port } = hostAndPort(broker.url)
  const { client, secret } = place
  return [
    ...(isSecure(broker) && broker.ca_url !== undefined ? [`# First: curl -s "${broker.ca_url}" -o ca.crt`] : []),
    ...(secret === undefined ? ['import os'] : []),
    'import paho.mqtt.publish as publish',
    '',
    'publish.single(',
    `    "${topicOf(place)}",`,
    `    '${PACK}',`,
    '    qos=1,',
    `    hostname="${host}",`,
    `    port=${port},`,
    `    auth={"username": "${client}", "password": ${secret === undefined ? 'os.environ["SECRET"]' : formatJson(secret)}},`,
    ...(isSecure(broker) ? [`    tls=${broker.ca_url === undefined ? '{}' : '{"ca_certs": "ca.crt"}'},`] : []),
    ')',
  ].join('\n')
}

const javascript = (place: Place, base: string) =>
  [
    `const response = await fetch('${base}/${topicOf(place)}', {`,
    `  method: 'POST',`,
    `  headers: {`,
    place.secret === undefined
      ? `    Authorization: \`Client \${process.env.SECRET}\`,`
      : `    Authorization: ${formatJson(`Client ${place.secret}`)},`,
    `    'Content-Type': 'application/senml+json',`,
    `  },`,
    `  body: JSON.stringify([{ n: 'temperature', u: 'Cel', v: 21.5 }]),`,
    `})`,
    `console.log(response.status, await response.text())`,
  ].join('\n')

function arduino(place: Place, broker: Broker): string {
  const { host, port } = hostAndPort(broker.url)
  const secure = isSecure(broker)
  const login = `"${place.client}", "${place.client}", ${formatJson(place.secret ?? PLACEHOLDER)}`
  return [
    ...(secure ? ['#include <WiFiClientSecure.h>'] : ['#include <WiFi.h>']),
    '#include <PubSubClient.h>',
    '',
    ...(secure
      ? [
          `// The certificate of the authority${broker.ca_url === undefined ? '' : `: ${broker.ca_url}`}`,
          'const char *AUTHORITY = R"PEM(',
          '-----BEGIN CERTIFICATE-----',
          ')PEM";',
          '',
          'WiFiClientSecure network;',
        ]
      : ['WiFiClient network;']),
    'PubSubClient mqtt(network);',
    '',
    'void setup() {',
    '  WiFi.begin("NETWORK", "PASSWORD");',
    '  while (WiFi.status() != WL_CONNECTED) delay(500);',
    ...(secure ? ['  network.setCACert(AUTHORITY);'] : []),
    `  mqtt.setServer("${host}", ${port});`,
    '  mqtt.setBufferSize(512);',
    '}',
    '',
    'void loop() {',
    `  if (!mqtt.connected() && !mqtt.connect(${login})) {`,
    '    delay(5000);',
    '    return;',
    '  }',
    '  mqtt.loop();',
    `  mqtt.publish("${topicOf(place)}", ${formatJson(PACK)});`,
    '  delay(10000);',
    '}',
  ].join('\n')
}

function nodeRed(place: Place, base: string): string {
  const headers = { Authorization: `Client ${place.secret ?? PLACEHOLDER}`, 'Content-Type': 'application/senml+json' }
  return formatJson(
    [
      {
        id: 'skein-send',
        type: 'inject',
        name: 'Send',
        payload: PACK,
        payloadType: 'json',
        x: 120,
        y: 80,
        wires: [['skein-login']],
      },
      {
        id: 'skein-login',
        type: 'function',
        name: 'Login',
        func: `msg.headers = ${formatJson(headers)}\nreturn msg`,
        outputs: 1,
        x: 280,
        y: 80,
        wires: [['skein-post']],
      },
      {
        id: 'skein-post',
        type: 'http request',
        name: 'Publish',
        method: 'POST',
        ret: 'txt',
        url: `${base}/${topicOf(place)}`,
        x: 440,
        y: 80,
        wires: [['skein-answer']],
      },
      {
        id: 'skein-answer',
        type: 'debug',
        name: 'Answer',
        complete: 'statusCode',
        targetType: 'msg',
        x: 610,
        y: 80,
        wires: [],
      },
    ],
    2,
  )
}
