/** The commands of a guide with the addresses of this installation. Pure. */
import type { Addresses } from '../../api/operations.ts'

/** The addresses of an installation on the machine of the reader, as the guides write them. */
const HTTP = ['http://127.0.0.1:8080', 'http://127.0.0.1:7070', 'http://localhost:7070', 'https://localhost:8080']
const WEBSOCKET = 'ws://127.0.0.1:8080'
const MQTT = 'mqtt://127.0.0.1:1883'
const COAP = 'coap://127.0.0.1:5683'
const BROKER_WITH_TLS = '-h localhost -p 8883'
const MANAGER = 'HOST:7071'
const MQTTS_PORT = '8883'

/** `base`: where the browser reaches the API, without a slash at its end. */
export function withAddresses(text: string, base: string, { mqtt, mqtts, coap, workers }: Partial<Addresses>): string {
  const broker = mqtts === undefined ? undefined : new URL(mqtts.url.replace(/^mqtts:/, 'https:'))
  const pairs: (readonly [string, string | undefined])[] = [
    ...HTTP.map((address) => [address, base] as const),
    [WEBSOCKET, base.replace(/^http/, 'ws')],
    [MQTT, mqtt?.url],
    [COAP, coap?.url],
    [
      BROKER_WITH_TLS,
      broker === undefined ? undefined : `-h ${broker.hostname} -p ${broker.port === '' ? MQTTS_PORT : broker.port}`,
    ],
    [MANAGER, workers?.address],
  ]
  return pairs.reduce((shown, [known, own]) => (own === undefined ? shown : shown.replaceAll(known, own)), text)
}
