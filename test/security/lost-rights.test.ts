// principle 2, task-manager.md section 1: a right that is taken ends the streams of the task manager as it ends those of the platform
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { TestUser } from '../harness/api.ts'
import { openEvents } from '../harness/event-stream.ts'
import { until } from '../harness/until.ts'
import { grantRole, revokeRoles } from '../api/support.ts'
import { startWhole } from './support.ts'
import type { Whole } from './support.ts'

/** The promise is a second; a busy machine has three, and the interval that there was before had five. */
const DEADLINE_MS = 3000

let whole: Whole
beforeAll(async () => {
  whole = await startWhole()
})
afterAll(() => whole[Symbol.asyncDispose]())

const owner = () => whole.plant.owner
const place = () => ({ type: 'domain', domainId: whole.plant.domainId, id: whole.plant.domainId }) as const

async function newMember(): Promise<TestUser> {
  const user = await whole.plant.api.newUser()
  await grantRole(whole.plant.api, user.id, place(), ['read', 'task_read'])
  return user
}

/** A task with a run that waits for a worker, so that its output may still come. */
async function newStartedTask(): Promise<string> {
  const id = await whole.newTask()
  const started = await owner().call('POST', `/tasks/${id}/start`)
  expect(started.status, started.text).toBe(200)
  return id
}

const follow = (path: string, { accessToken }: TestUser) =>
  openEvents(`http://${whole.host}${path}`, { authorization: `Bearer ${accessToken}` })

type Loss = { what: string; lose(user: TestUser): Promise<unknown>; restore?(): Promise<unknown> }

const LOSSES: readonly Loss[] = [
  { what: 'the role is taken', lose: ({ id }) => revokeRoles(whole.plant.api, id, place()) },
  { what: 'the user is disabled', lose: ({ id }) => whole.plant.api.admin('POST', `/users/${id}/disable`) },
  {
    what: 'the session is revoked',
    lose: ({ refreshToken }) => whole.plant.api.as(`Bearer ${refreshToken}`)('POST', '/users/tokens/revoke'),
  },
  {
    what: 'the domain is disabled',
    lose: () => owner().call('POST', `/domains/${whole.plant.domainId}/disable`),
    restore: () => owner().call('POST', `/domains/${whole.plant.domainId}/enable`),
  },
]

test.each(LOSSES)('a followed output ends when $what', async ({ lose, restore }) => {
  const id = await newStartedTask()
  const user = await newMember()
  await using output = await follow(`/tasks/${id}/logs?follow=true`, user)
  expect(output.status).toBe(200)
  await lose(user)
  const end = await until(() => output.events.find(({ event }) => event === 'end'), 'the last event', DEADLINE_MS)
  expect(['not_found', 'unauthenticated']).toContain(end.data['reason'])
  await until(() => output.isEnded(), 'the connection is closed')
  await restore?.()
})

test.each(LOSSES)('the events of tasks end when $what', async ({ lose, restore }) => {
  const user = await newMember()
  await using events = await follow('/events', user)
  expect(events.status).toBe(200)
  await whole.newTask()
  await events.next('task')
  await lose(user)
  const end = await until(() => events.events.find(({ event }) => event === 'end'), 'the last event', DEADLINE_MS)
  expect(['forbidden', 'unauthenticated']).toContain(end.data['reason'])
  await until(() => events.isEnded(), 'the connection is closed')
  await restore?.()
})

test('a caller with rights left in one domain continues to receive that domain only', async () => {
  const user = await newMember()
  const made = await user.call('POST', '/domains', { name: 'own' })
  const { id: own } = made.json<{ id: string }>()
  await using events = await follow('/events', user)
  await whole.newTask()
  await events.next('task', ({ domain_id: domainId }) => domainId === whole.plant.domainId)
  await revokeRoles(whole.plant.api, user.id, place())
  await using witness = await follow('/events', owner())
  await until(
    async () => {
      const seen = events.events.length
      const id = await whole.newTask()
      await witness.next('task', ({ task_id: taskId }) => taskId === id)
      return events.events.length === seen
    },
    'nothing of it is shown',
    DEADLINE_MS,
  )
  await user.call('POST', '/tasks', { name: 'add', inputs: [1, 2], domain_id: own })
  await events.next('task', ({ domain_id: domainId }) => domainId === own)
  expect(events.isEnded()).toBe(false)
})

test('a followed output ends when the task is deleted', async () => {
  const id = await newStartedTask()
  const user = await newMember()
  await using output = await follow(`/tasks/${id}/logs?follow=true`, user)
  const deleted = await owner().call('DELETE', `/tasks/${id}?force=true`)
  expect(deleted.status, deleted.text).toBe(204)
  const end = await until(() => output.events.find(({ event }) => event === 'end'), 'the last event', DEADLINE_MS)
  // It may have been seen to end before it was seen to be gone.
  expect(['not_found', 'ended']).toContain(end.data['reason'])
})
