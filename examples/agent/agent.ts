/**
 * A device that knows nothing but its external id and key: it asks what it is, connects over MQTT with its certificate,
 * publishes a measurement every few seconds and obeys its control channel.
 *
 *   node examples/agent/agent.ts --id EXTERNAL_ID --key EXTERNAL_KEY [--url http://127.0.0.1:8080] [--mqtt mqtts://127.0.0.1:8883] [--ca ca.crt]
 */
import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import mqtt from 'mqtt'

type Config = {
  client_id: string
  client_secret: string
  channels: { id: string; metadata?: { type?: string } }[]
  client_cert?: string
  client_key?: string
  ca_cert?: string
}

/** Commands of the control channel, as SenML: `[{"n":"interval","v":5}]` and `[{"n":"stop","vb":true}]`. */
type Command = { n?: string; v?: number; vb?: boolean }

const { values } = parseArgs({
  options: {
    id: { type: 'string', default: '' },
    key: { type: 'string', default: '' },
    url: { type: 'string', default: 'http://127.0.0.1:8080' },
    mqtt: { type: 'string', default: 'mqtts://127.0.0.1:8883' },
    ca: { type: 'string' },
  },
})

/** One line instead of a stack: the addresses, the id and the key are what the caller can change. */
process.on('uncaughtException', (error: Error & { code?: string; cause?: Error }) => {
  const reason = error.cause?.message || error.message || error.code
  console.error(`${reason}; check --url ${values.url}, --mqtt ${values.mqtt}, --id and --key`)
  process.exit(1)
})

const answer = await fetch(`${values.url}/clients/bootstrap/${encodeURIComponent(values.id)}`, {
  headers: { authorization: `Client ${values.key}` },
})
if (!answer.ok) throw new Error(`bootstrap refused with ${answer.status}: ${await answer.text()}`)
const config = (await answer.json()) as Config
const topicOf = (type: string) => {
  const channel = config.channels.find(({ metadata }) => metadata?.type === type)
  if (channel === undefined) throw new Error(`the configuration names no ${type} channel`)
  return `channels/${channel.id}/messages`
}

const ca = values.ca === undefined ? config.ca_cert : readFileSync(values.ca, 'utf8')
const hasCertificate = (config.client_cert ?? '') !== ''
const client = await mqtt.connectAsync(values.mqtt, {
  ...(ca === undefined ? {} : { ca }),
  // The certificate says who we are; without one it is id and secret.
  ...(hasCertificate
    ? { cert: config.client_cert ?? '', key: config.client_key ?? '' }
    : { username: config.client_id, password: config.client_secret }),
})
console.log(`connected as ${config.client_id}, by ${hasCertificate ? 'certificate' : 'secret'}`)

let publishing: NodeJS.Timeout | undefined
function publishEvery(seconds: number): void {
  clearInterval(publishing)
  const measure = () =>
    client.publishAsync(topicOf('data'), JSON.stringify([{ n: 'temperature', u: 'Cel', v: 20 + Math.random() }]), {
      qos: 1,
    })
  const publish = () => void measure().catch((error: Error) => console.error(error.message))
  publish()
  publishing = setInterval(publish, seconds * 1000)
}

client.on('message', (_topic, payload) => {
  for (const { n, v, vb } of JSON.parse(payload.toString()) as Command[]) {
    if (n === 'interval' && v !== undefined && v > 0) publishEvery(v)
    if (n === 'stop' && vb === true) {
      console.log('stopped, as the control channel says')
      clearInterval(publishing)
      client.end()
    }
  }
})
client.on('error', (error) => console.error(error.message))
await client.subscribeAsync(topicOf('control'), { qos: 1 })
publishEvery(10)
