// principles 6 and 7: what one domain holds, slowly or in numbers, keeps no other domain out
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '#core/ids.ts'
import { productSources } from '../architecture/source-imports.ts'
import { openEvents } from '../harness/event-stream.ts'
import { until } from '../harness/until.ts'
import { exampleModule } from '../tasks/support.ts'
import { askDeaf, startWhole } from './support.ts'
import type { Whole } from './support.ts'

let whole: Whole
beforeAll(async () => {
  whole = await startWhole({ SKEIN_STREAMS_PER_CLIENT: '3', SKEIN_STREAMS_PER_DOMAIN: '5' })
})
afterAll(() => whole[Symbol.asyncDispose]())

/** A user with a domain and a task of their own. */
async function newNeighbour() {
  const user = await whole.plant.api.newUser()
  const made = await user.call('POST', '/domains', { name: 'neighbour', alias: `n${newId().slice(0, 8)}` })
  const { id: domainId } = made.json<{ id: string }>()
  const task = await user.call('POST', '/tasks', { name: 'add', inputs: [1, 2], domain_id: domainId })
  return { user, domainId, taskId: task.json<{ id: string }>().id }
}

type Neighbour = Awaited<ReturnType<typeof newNeighbour>>

async function upload({ user, taskId }: Neighbour): Promise<Response> {
  const form = new FormData()
  form.append('file', new Blob([new Uint8Array(exampleModule('add'))]), 'module.wasm')
  const headers = { authorization: `Bearer ${user.accessToken}` }
  return await fetch(`http://${whole.host}/tasks/${taskId}/upload`, { method: 'PUT', headers, body: form })
}

/** Begins an upload and sends two bytes of the module. */
async function trickle({ user, taskId }: Neighbour): Promise<Socket> {
  const socket = connect({ port: whole.port, host: '127.0.0.1' }).on('error', () => undefined)
  await once(socket, 'connect')
  const head = '--b\r\nContent-Disposition: form-data; name="file"; filename="m.wasm"\r\n\r\n'
  socket.write(
    `PUT /tasks/${taskId}/upload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${user.accessToken}\r\n` +
      `Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000\r\n\r\n${head}\0a`,
  )
  return socket
}

test('slow uploads occupy the share of their domain; another domain uploads meanwhile', async () => {
  const [slow, other] = [await newNeighbour(), await newNeighbour()]
  using sockets = new DisposableStack()
  for (let index = 0; index < 8; index++) {
    const socket = await trickle(slow)
    sockets.defer(() => socket.destroy())
  }
  const refused = await until(async () => {
    const answer = await upload(slow)
    return answer.status === 200 ? undefined : answer
  }, 'the share of the domain is taken')
  expect(refused.status).toBe(429)
  expect(refused.headers.get('retry-after')).toBe('5')
  expect(await refused.json()).toMatchObject({
    error: 'rate_limited',
    message: 'one domain may have at most 8 modules being uploaded at a time; try again later',
  })
  expect((await upload(other)).status).toBe(200)
  sockets.dispose()
  await until(async () => (await upload(slow)).status === 200, 'what was left is free again')
})

test('unread exports occupy the share of their domain; another domain exports meanwhile', async () => {
  const { plant } = whole
  const exporting = async (user: { call: typeof plant.owner.call; accessToken: string }, domainId: string) => {
    const made = await user.call('POST', `/${domainId}/channels`, { name: 'channel' })
    const path = `/m/${domainId}/c/${made.json<{ id: string }>().id}`
    const headers = { authorization: `Bearer ${user.accessToken}`, accept: 'text/csv' }
    return { user, path, headers }
  }
  const mine = await exporting(plant.owner, plant.domainId)
  const neighbour = await newNeighbour()
  const theirs = await exporting(neighbour.user, neighbour.domainId)
  const text = 'x'.repeat(900_000)
  for (const { user, path } of [mine, theirs])
    for (let index = 0; index < 24; index++) {
      const sent = await user.call('POST', path, [{ n: `${index}`, vs: text }], {
        'content-type': 'application/senml+json',
      })
      expect(sent.status, sent.text).toBe(202)
    }
  using readers = new DisposableStack()
  for (let index = 0; index < 3; index++) readers.use(await askDeaf(whole.port, mine.path, mine.headers))
  const refused = await fetch(`http://${whole.host}${mine.path}`, { headers: mine.headers })
  expect(refused.status).toBe(429)
  expect(refused.headers.get('retry-after')).toBe('10')
  const allowed = await fetch(`http://${whole.host}${theirs.path}`, { headers: theirs.headers })
  expect(allowed.status).toBe(200)
  expect((await allowed.text()).length).toBeGreaterThan(24 * text.length)
})

test('streams of one client and of one domain are limited, over every protocol alike, with the setting in the error', async () => {
  const { plant, host } = whole
  const device = await plant.newConnectedDevice()
  const other = await plant.newDevice()
  await plant.connect(other, device.channelId)
  const path = `/m/${plant.domainId}/c/${device.channelId}`
  const headersOf = ({ secret }: { secret: string }) => ({ authorization: `Client ${secret}` })
  const upgrade = {
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': Buffer.alloc(16).toString('base64'),
  }
  using streams = new DisposableStack()
  streams.use(await askDeaf(whole.port, path, { ...headersOf(device), ...upgrade }))
  const open: { close(): void }[] = []
  for (let index = 0; index < 2; index++) open.push(await openEvents(`http://${host}${path}/live`, headersOf(device)))
  streams.defer(() => {
    for (const reader of open) reader.close()
  })
  const refused = await fetch(`http://${host}${path}/live`, { headers: headersOf(device) })
  expect(refused.status).toBe(429)
  expect(refused.headers.get('retry-after')).toBe('10')
  expect(await refused.text()).toContain('SKEIN_STREAMS_PER_CLIENT')
  await expect(askDeaf(whole.port, path, { ...headersOf(device), ...upgrade })).rejects.toThrow(
    /^HTTP\/1\.1 429 [^]*Retry-After: 10[^]*SKEIN_STREAMS_PER_CLIENT/,
  )
  // Another client of the domain has its own, until the domain has its limit.
  for (let index = 0; index < 2; index++) open.push(await openEvents(`http://${host}${path}/live`, headersOf(other)))
  const full = await fetch(`http://${host}${path}/live`, { headers: headersOf(other) })
  expect(full.status).toBe(429)
  expect(await full.text()).toContain('SKEIN_STREAMS_PER_DOMAIN')
  open[0]?.close()
  await until(async () => {
    await using again = await openEvents(`http://${host}${path}/live`, headersOf(other))
    return again.status === 200
  }, 'a stream that is closed counts no more')
})

/**
 * Refusals for what the process has too much of, beside those of `Slots` and `StreamLimits`, each with the reason why it
 * needs no share for a domain. A new one is shared by domain, or stands here.
 */
const UNSHARED: Readonly<Record<string, string>> = {
  'api/messages/live/followers.ts': 'streams are bounded by owner before they follow, MQTT and CoAP by connection',
  'core/streams/limits.ts': 'the sum of streams that are bounded by owner',
  'manager/writer/run-plan.ts': 'the sum of what is written in one batch: the next one has its own',
}

test('a limit of the process that is not shared by domain has a reason', () => {
  const counted =
    />=? ?(?:MAX_\w+|\w+\.max\w+)\b[^;{]*\{?\s*(?:countRefusal\('[a-z_]+'\)\s*)?throw new ServiceError\(\s*'unavailable'/
  const found = productSources()
    .filter(({ path, text }) => /^(api|manager|proxy|core)\//.test(path) && counted.test(text))
    .map(({ path }) => path)
  expect(found.toSorted()).toEqual(Object.keys(UNSHARED).toSorted())
})
