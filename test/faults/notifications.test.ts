// Acknowledged messages cause notifications, whatever is killed between the commit and the delivery (decision 57).
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'

const MESSAGES = 20
/** What was being posted at the blow is taken up when its lease of two minutes has ended. */
const TOLD_WITHIN_MS = 200_000

test(
  'each message that was acknowledged right before kill -9 is notified after the next start',
  async () => {
    const told = new Set<number>()
    const contact = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => void chunks.push(chunk))
      request.on('end', () => {
        const { payload } = JSON.parse(Buffer.concat(chunks).toString()) as { payload: string }
        for (const match of payload.matchAll(/"v":(\d+)/g)) told.add(Number(match[1]))
        response.end()
      })
    })
    await once(contact.listen(0, '127.0.0.1'), 'listening')
    const { port } = contact.address() as AddressInfo
    using installation = await createInstallation({ SKEIN_WEBHOOK_HOSTS: `127.0.0.1:${port}` })
    let whole = await startWhole(installation)
    try {
      const login = await whole.call('POST', '/users/tokens/issue', {
        body: { identity: 'admin', secret: 'the-first-admin' },
      })
      const authorization = `Bearer ${login.json<{ access_token: string }>().access_token}`
      const made = async <T>(path: string, body: unknown) =>
        (await whole.call('POST', path, { body, authorization })).json<T>()
      const { id: domainId } = await made<{ id: string }>('/domains', { name: 'faults' })
      const device = { external_id: 'gateway', external_key: 'a-key-of-the-factory' }
      const { clients, channels } = await made<{ clients: { key: string }[]; channels: { id: string }[] }>(
        `/${domainId}/mapping`,
        device,
      )
      const channelId = channels[0]?.id ?? ''
      const body = { topic: channelId, contact: `http://127.0.0.1:${port}/` }
      expect((await whole.call('POST', '/subscriptions', { body, authorization })).status).toBe(201)
      const answers = await Promise.all(
        Array.from({ length: MESSAGES }, (_, value) =>
          whole.call('POST', `/m/${domainId}/c/${channelId}`, {
            body: [{ n: 'v', v: value }],
            authorization: `Client ${clients[0]?.key ?? ''}`,
          }),
        ),
      )
      whole.kill('SIGKILL')
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 202))
      await whole.ended
      whole = await startWhole(installation)
      await until(() => told.size === MESSAGES, 'every message is told', TOLD_WITHIN_MS)
    } finally {
      await whole[Symbol.asyncDispose]()
      contact.close()
    }
  },
  TOLD_WITHIN_MS + 120_000,
)
