/**
 * Messages that cause runs, by the size of their batches: messages wait behind a rate limit, the limit is removed, and the time until all have run
 * is measured, with the processor time of all processes per message.
 */
import { cpuMsByRole, newDataDir, prepareDevices, removeDataDir, startPlatform } from './platform.ts'
import type { Platform } from './platform.ts'
import { median, perSecond, printTable } from './statistics.ts'

/** Messages of one round. */
const MESSAGES = 8_000
/** Publishers at the same time, each with the next message after the answer. */
const PUBLISHERS = 32
const ROUNDS = 2
/** Between two looks at the number of runs, which is complete when it has not changed for a while. */
const LOOK_MS = 250
const QUIET_MS = 1_500
const DEADLINE_MS = 120_000
/** The batches of a task without the field, and with it. */
const BATCHES = [undefined, 1, 100, 500] as const
const TARGET_RATIO = 5

type Setup = { domainId: string; channelId: string; token: string; secret: string; taskId: string }
type Measured = { perSecond: number; usByRole: Record<string, number>; runs: number }

const pause = (durationMs: number) => new Promise<void>((resolve) => setTimeout(resolve, durationMs))

async function prepare(platform: Platform): Promise<Setup> {
  const { domainId, channelId, token, devices } = await prepareDevices(platform, 1)
  const fields = { name: 'hello', domain_id: domainId }
  const { id } = await platform.call<{ id: string }>('POST', '/tasks', fields, token)
  await platform.upload(id, 'examples/hello/hello.wasm', token)
  return { domainId, channelId, token, secret: devices[0]?.secret ?? '', taskId: id }
}

async function publish(platform: Platform, { domainId, channelId, secret }: Setup): Promise<void> {
  let left = MESSAGES
  const publisher = async () => {
    while (left-- > 0) {
      const answer = await fetch(`http://127.0.0.1:${platform.port}/m/${domainId}/c/${channelId}`, {
        method: 'POST',
        headers: { 'content-type': 'application/senml+json', authorization: `Client ${secret}` },
        body: JSON.stringify([{ n: 'temperature', u: 'Cel', v: left }]),
      })
      if (answer.status !== 202) throw new Error(`publishing a message returned ${answer.status}`)
    }
  }
  await Promise.all(Array.from({ length: PUBLISHERS }, publisher))
}

/** Runs of the task that have ended. */
async function countEnded(platform: Platform, { taskId, token }: Setup): Promise<number> {
  const path = `/runs?task_id=${taskId}&limit=1&state=`
  const totals = await Promise.all(
    [3, 4].map(
      async (state) => (await platform.call<{ total: number }>('GET', `${path}${state}`, undefined, token)).total,
    ),
  )
  return totals.reduce((sum, total) => sum + total, 0)
}

async function measure(platform: Platform, setup: Setup, batch: number | undefined): Promise<Measured> {
  const { channelId, taskId, token } = setup
  const change = async (trigger: object | null) => await platform.call('PUT', `/tasks/${taskId}`, { trigger }, token)
  const before = await countEnded(platform, setup)
  await change({ channel_id: channelId, rate_limit: '1/24h', excess: 'wait' })
  await publish(platform, setup)
  // The first message has run.
  const deadlineMs = performance.now() + DEADLINE_MS
  while ((await countEnded(platform, setup)) === before) await pause(50)
  await pause(500)
  const used = cpuMsByRole(platform.pid)
  const beganMs = performance.now()
  await change({ channel_id: channelId, ...(batch === undefined ? {} : { batch }) })
  let [runs, changedMs] = [before, beganMs]
  while (runs === before || performance.now() - changedMs < QUIET_MS) {
    await pause(LOOK_MS)
    const found = await countEnded(platform, setup)
    if (found !== runs) changedMs = performance.now()
    if (performance.now() > deadlineMs) throw new Error(`the messages did not run: ${found - before} runs`)
    runs = found
  }
  const after = cpuMsByRole(platform.pid)
  await change(null)
  const usByRole = Object.fromEntries(
    Object.keys(after).map((role) => [role, (((after[role] ?? 0) - (used[role] ?? 0)) * 1000) / MESSAGES]),
  )
  return { perSecond: (MESSAGES / (changedMs - beganMs)) * 1000, usByRole, runs: runs - before }
}

export async function benchBatches(): Promise<void> {
  const dataDir = newDataDir()
  try {
    await using platform = await startPlatform(dataDir)
    const setup = await prepare(platform)
    const found = new Map<number | undefined, Measured[]>(BATCHES.map((batch) => [batch, []]))
    await measure(platform, setup, 100)
    for (let round = 0; round < ROUNDS; round++)
      for (const batch of BATCHES) found.get(batch)?.push(await measure(platform, setup, batch))
    const of = (batch: number | undefined, value: (one: Measured) => number) =>
      median((found.get(batch) ?? []).map(value))
    const today = of(undefined, (one) => one.perSecond)
    printTable(
      'Messages that cause runs of a command, from a backlog',
      BATCHES.map((batch) => {
        const rate = of(batch, (one) => one.perSecond)
        const roles = Object.keys(found.get(batch)?.[0]?.usByRole ?? {})
        const used = roles.map((role) => Math.round(of(batch, (one) => one.usByRole[role] ?? 0)))
        const parts = roles.map((role, index) => `${used[index]} ${role}`)
        return {
          name: batch === undefined ? 'without batch: a run each' : `batch: ${batch}`,
          figure: `${perSecond(rate, 'messages')}, ${Math.round(of(batch, (one) => one.runs))} runs`,
          ratio: `${(rate / today).toFixed(1)} times; ${used.reduce((sum, one) => sum + one, 0)} us of CPU each: ${parts.join(', ')}`,
          ...(batch === 100 ? { target: `${TARGET_RATIO} times`, isReached: rate >= TARGET_RATIO * today } : {}),
        }
      }),
    )
  } finally {
    removeDataDir(dataDir)
  }
}
