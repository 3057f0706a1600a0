/** What users do, and how it is sent. Each is measured alone, in steady state, over a connection that is open. */
import type { Operation } from './measure.ts'
import type { Product } from './product.ts'
import { coapClient, httpClient, mqttClient, webSocketClient } from './clients.ts'
import type { HttpRequest } from './clients.ts'

export const OPERATIONS = [
  'publish over HTTP',
  'publish over MQTT',
  'publish over CoAP',
  'publish over WebSocket',
  'invoke',
  'invoke, 64 at once',
  'start',
  'a batch of 100 messages of a trigger',
  'create a task',
  'GET a task, as a poll does',
  'list tasks',
  'GET a client',
  'list clients',
  'GET a page of messages',
] as const
export type OperationName = (typeof OPERATIONS)[number]

const AT_ONCE = 64
const PACK = '[{"bn":"room:","n":"temperature","u":"Cel","v":21.5}]'
const INPUTS = JSON.stringify({ inputs: [20, 22] })

export async function openOperations(
  { plant, ports, device, channelId, taskId, handBatch }: Product,
  stack: DisposableStack,
): Promise<Record<OperationName, Operation>> {
  const { domainId, owner } = plant
  const channel = `m/${domainId}/c/${channelId}`
  const [one, ...others] = await Promise.all(Array.from({ length: AT_ONCE }, () => httpClient(ports.http)))
  if (one === undefined) throw new Error('no client')
  const mqtt = await mqttClient(ports.mqtt, device)
  const coap = await coapClient(ports.coap)
  const ws = await webSocketClient(ports.http, `/${channel}`, device.secret)
  for (const client of [one, ...others, mqtt, coap, ws]) stack.use(client)

  const json = { authorization: `Bearer ${owner.accessToken}`, 'content-type': 'application/json' }
  const request = (method: string, path: string, body?: string): HttpRequest => ({
    method,
    path,
    headers: json,
    ...(body === undefined ? {} : { body }),
  })
  const expecting = (wanted: string, answered: () => void) => (status: string) => {
    if (!status.startsWith(wanted)) throw new Error(`answered with ${status}, not ${wanted}`)
    answered()
  }
  const http = (wanted: string, asked: HttpRequest): Operation => ({
    send: (answered) => one.ask(asked, expecting(wanted, answered)),
  })
  const invocation = request('POST', `/tasks/${taskId}/invoke`, INPUTS)
  const publication: HttpRequest = {
    method: 'POST',
    path: `/${channel}`,
    headers: { authorization: `Client ${device.secret}`, 'content-type': 'application/senml+json' },
    body: PACK,
  }
  return {
    'publish over HTTP': http('202', publication),
    'publish over MQTT': {
      send: (answered) => mqtt.ask({ topic: channel, payload: PACK }, expecting('packet 4', answered)),
    },
    'publish over CoAP': {
      send: (answered) => coap.ask({ path: channel, auth: device.secret, payload: PACK }, expecting('2.', answered)),
    },
    'publish over WebSocket': {
      send: (answered) => ws.ask(PACK, answered),
      hasBegun: ({ statements }) => statements > 0,
    },
    invoke: http('200', invocation),
    'invoke, 64 at once': {
      send(answered) {
        let open = AT_ONCE
        const done = expecting('200', () => --open === 0 && answered())
        for (const client of [one, ...others]) client.ask(invocation, done)
      },
    },
    start: {
      ...http('200', request('POST', `/tasks/${taskId}/start`)),
      // The order to the runner and its result.
      hasBegun: (counted) => counted['runner frames'] > 1,
    },
    'a batch of 100 messages of a trigger': {
      send: (answered) => void handBatch().then(answered),
      hasBegun: (counted) => counted['runner frames'] > 1,
    },
    'create a task': http(
      '201',
      request('POST', '/tasks', JSON.stringify({ name: 'add', inputs: [1, 2], domain_id: domainId })),
    ),
    'GET a task, as a poll does': http('200', request('GET', `/tasks/${taskId}`)),
    'list tasks': http('200', request('GET', `/tasks?limit=10`)),
    'GET a client': http('200', request('GET', `/${domainId}/clients/${device.id}`)),
    'list clients': http('200', request('GET', `/${domainId}/clients?limit=10`)),
    'GET a page of messages': http('200', request('GET', `/${channel}?limit=10`)),
  }
}
