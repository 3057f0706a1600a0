// contract, decisions 59 to 74 and 80 to 82, section 13: requests as published clients of other versions send them
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ADMIN_SECRET, PATIENT_WORKER } from '../cli/world.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { runCommand } from './command-lines.ts'
import { TOPICS, runCase } from './replay.ts'
import type { Place } from './replay.ts'

const START_DEADLINE_MS = 180_000

type Running = AsyncDisposable & Place

async function start(settings: Record<string, string> = {}): Promise<Running> {
  const installation: Installation = await createInstallation({ ...PATIENT_WORKER, ...settings })
  const whole: Whole = await startWhole(installation)
  return {
    platform: installation.base,
    manager: `http://127.0.0.1:${installation.environment['SKEIN_MANAGER_HTTP_PORT']}`,
    dataDir: installation.dataDir,
    admin: { username: 'admin', secret: ADMIN_SECRET },
    async [Symbol.asyncDispose]() {
      await whole[Symbol.asyncDispose]()
      installation[Symbol.dispose]()
    },
  }
}

/** Topics that can share a platform run on one; the others have one each. */
const withTheirOwn = TOPICS.filter(({ alone, settings }) => alone === true || settings !== undefined)
const together = TOPICS.filter((topic) => !withTheirOwn.includes(topic))

for (const topics of [together, ...withTheirOwn.map((topic) => [topic])]) {
  describe(topics.length === 1 ? `on its own: ${topics[0]?.file}` : 'on one platform', () => {
    let place: Running
    beforeAll(async () => {
      place = await start(topics[0]?.settings)
    }, START_DEADLINE_MS)
    afterAll(() => place?.[Symbol.asyncDispose]())

    for (const topic of topics) {
      describe(topic.file.replace('.json', ''), () => {
        for (const one of topic.cases)
          test(one.name, async () => {
            const names = await runCase(topic, one, place)
            if (one.command !== undefined) await runCommand(one, names, place)
          })
      })
    }
  })
}

test('every case has a source, and none is left out', () => {
  const cases = TOPICS.flatMap((topic) => topic.cases)
  expect(cases.filter(({ source }) => source === '')).toEqual([])
  expect(cases.every(({ request, command }) => (request === undefined) !== (command === undefined))).toBe(true)
  expect(cases.length).toBeGreaterThanOrEqual(367)
})
