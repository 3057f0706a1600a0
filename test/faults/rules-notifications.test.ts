/**
 * Kills processes and PostgreSQL while a rule calls a webhook for what clients publish: each acknowledged message causes its request, delivered at
 * least once with the same id, and no message causes two.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { strike } from '../harness/strikes.ts'
import { until } from '../harness/until.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Whole } from '../harness/whole.ts'

const KILLS = Number(process.env['SKEIN_TEST_KILLS'] ?? 3)
/** Messages between two kills: a webhook gets 100 at once, and then 600 a minute. */
const BETWEEN = 15
/** What was being posted at a kill is taken up when its lease of two minutes has ended. */
const TOLD_WITHIN_MS = 200_000

test(
  'each acknowledged message calls the webhook of the rule, and causes one request',
  async () => {
    /** The ids of requests by the number that they are about. */
    const told = new Map<number, Set<string>>()
    const receiver = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => void chunks.push(chunk))
      request.on('end', () => {
        const { id, value } = JSON.parse(Buffer.concat(chunks).toString()) as { id: string; value: number }
        told.set(value, (told.get(value) ?? new Set()).add(id))
        response.end()
      })
    })
    await once(receiver.listen(0, '127.0.0.1'), 'listening')
    const { port } = receiver.address() as AddressInfo
    using installation = await createInstallation({ SKEIN_WEBHOOK_HOSTS: `127.0.0.1:${port}` })
    let whole: Whole = await startWhole(installation)
    await using stack = new AsyncDisposableStack()
    stack.defer(() => void receiver.close())
    stack.defer(async () => await whole[Symbol.asyncDispose]())
    const login = await whole.call('POST', '/users/tokens/issue', {
      body: { identity: 'admin', secret: 'the-first-admin' },
    })
    const authorization = `Bearer ${login.json<{ access_token: string }>().access_token}`
    const made = async (path: string, body: unknown) => {
      const answer = await whole.call('POST', path, { body, authorization })
      expect(answer.status, answer.text).toBeLessThan(300)
      return answer.json<{ id: string }>().id
    }
    const domainId = await made('/domains', { name: 'told' })
    const channelId = await made(`/${domainId}/channels`, { name: 'values' })
    const ruleId = await made(`/${domainId}/rules`, {
      name: 'tells every number',
      source: { type: 'messages', channels: [channelId] },
      condition: 'value >= 0.0',
      actions: [{ type: 'webhook', url: `http://127.0.0.1:${port}/`, on: ['raise', 'repeat'] }],
    })
    const shown = async () => {
      const answer = await whole.call('GET', `/${domainId}/rules/${ruleId}`, { authorization }).catch(() => undefined)
      return answer?.status === 200 ? answer.json<{ seen: number; acted: number }>() : undefined
    }
    let sent = 0
    const send = async () => {
      for (;;) {
        const answer = whole.call('POST', `/http/m/${domainId}/c/${channelId}`, {
          body: [{ n: 'number', v: sent }],
          authorization,
          headers: { 'idempotency-key': `number ${sent}` },
        })
        if ((await answer.catch(() => undefined))?.status === 202) break
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
      sent++
    }
    for (let turn = 0; turn < KILLS; turn++) {
      for (let count = 0; count < BETWEEN; count++) await send()
      // Some are evaluated, and some of these delivered: the kill comes between these steps.
      await until(async () => ((await shown())?.seen ?? 0) >= sent - BETWEEN / 2, 'most are evaluated', TOLD_WITHIN_MS)
      whole = await strike(installation, whole, turn)
    }
    for (let count = 0; count < BETWEEN; count++) await send()
    await until(
      () => told.size === sent,
      () => `every number is told: ${told.size} of ${sent}`,
      TOLD_WITHIN_MS,
    )
    expect([...told].filter(([, ids]) => ids.size !== 1)).toEqual([])
    expect(await shown()).toMatchObject({ seen: sent, acted: sent })
  },
  TOLD_WITHIN_MS + 60_000 + KILLS * 60_000,
)
