/** Commands that publish as a client. The secret is a variable. */
import { apiBase, shownBase } from '../../api/base.ts'

type Place = { domain: string; client: string; channel: string }

const PACK = '[{"n":"temperature","u":"Cel","v":21.5}]'
const host = apiBase.hostname
const isTls = apiBase.protocol === 'https:'

export const SNIPPETS: readonly { name: string; text: (place: Place) => string }[] = [
  {
    name: 'curl',
    text: ({ domain, channel }) =>
      [
        `curl -X POST "${shownBase}/m/${domain}/c/${channel}" \\`,
        `  -H "Authorization: Client $SECRET" \\`,
        `  -H 'Content-Type: application/senml+json' \\`,
        `  -d '${PACK}'`,
      ].join('\n'),
  },
  {
    name: 'mosquitto_pub (MQTT)',
    text: ({ domain, client, channel }) =>
      [
        `mosquitto_pub -h ${host} -p ${isTls ? '8883 --tls-use-os-certs' : '1883'} -q 1 \\`,
        `  -u ${client} -P "$SECRET" \\`,
        `  -t m/${domain}/c/${channel} \\`,
        `  -m '${PACK}'`,
      ].join('\n'),
  },
  {
    name: 'coap-client (CoAP)',
    text: ({ domain, channel }) =>
      [
        `coap-client-notls -m post -t 110 \\`,
        `  "coap://${host}/m/${domain}/c/${channel}?auth=$SECRET" \\`,
        `  -e '${PACK}'`,
      ].join('\n'),
  },
  {
    name: 'JavaScript',
    text: ({ domain, channel }) =>
      [
        `await fetch('${shownBase}/m/${domain}/c/${channel}', {`,
        `  method: 'POST',`,
        `  headers: {`,
        `    Authorization: \`Client \${process.env.SECRET}\`,`,
        `    'Content-Type': 'application/senml+json',`,
        `  },`,
        `  body: JSON.stringify([{ n: 'temperature', u: 'Cel', v: 21.5 }]),`,
        `})`,
      ].join('\n'),
  },
]
