import { expect, test } from 'vitest'
import type { FollowerOptions } from '#api/messages/index.ts'
import { SessionDelivery } from './session-delivery.ts'
import { newCursor } from './cursors.ts'
import { Groups } from './groups.ts'
import type { SessionStates } from './session-state.ts'
import { Session } from '../session.ts'
import { OffsetTracker } from './offsets.ts'

const identity = { ownerKey: 1, scope: '1', domainKey: 1, credentials: undefined }

/** One session that follows channel 7 of a log that stands at `position`. */
async function follow() {
  const log = { position: 'start' }
  const failed: Session[] = []
  let follower: FollowerOptions | undefined
  const host = { failed: (session: Session) => void failed.push(session) } as never
  const messages = {
    get position() {
      return log.position
    },
    follow(options: FollowerOptions) {
      follower = options
      return Promise.resolve({ close: () => undefined })
    },
  } as never
  const states: SessionStates = new Map()
  const groups = new Groups({ messages, host, position: () => log.position, wake: () => undefined })
  const delivery = new SessionDelivery(messages, host, states)
  const options = {
    key: 1,
    epoch: 1,
    identity,
    clientIdentifier: 'c',
    expirySeconds: 10,
    isBridge: false,
    isSenderKept: false,
  }
  const session = new Session(options, host)
  const cursor = newCursor(session, 7, { channelKey: 7 } as never, undefined)
  const cursors = new Map([[7, cursor]])
  states.set(session, { session, clientKey: 1, cursors, will: undefined, finished: [], known: new Set(), skipped: 0 })
  session.subscriptions.set('f', { filter: 'f', streamKey: 7, session } as never)
  await delivery.begin(cursor)
  return { log, failed, session, states, tracker: new OffsetTracker(delivery, groups, states), end: follower?.onEnd }
}

test('a session whose follower fell behind keeps its position while the log advances', async () => {
  const { log, failed, session, states, tracker, end } = await follow()
  log.position = 'left'
  end?.('behind')
  log.position = 'later'
  expect(failed).toEqual([session])
  const one = [...states.values()][0]
  expect(one && tracker.atEnd(one)).toEqual([{ filter: 'f', position: 'left' }])
  expect(tracker.take()).toMatchObject({ node: 'later', moved: [{ filter: 'f', position: 'left' }] })
})

test('the position of a session is reported once, and again if it was not written', async () => {
  const { states, tracker } = await follow()
  const one = [...states.values()][0]
  for (const cursor of one?.cursors.values() ?? []) cursor.isStored = false
  const report = tracker.take()
  expect(report.moved).toMatchObject([{ session: { key: 1, epoch: 1 }, filter: 'f', position: undefined }])
  expect(tracker.take().moved).toEqual([])
  report.undo()
  expect(tracker.take().moved).toHaveLength(1)
})

test('a session whose end is not written yet is reported with the others until it is written', async () => {
  const { states, tracker } = await follow()
  const one = [...states.values()][0]
  if (one === undefined) throw new Error('no session')
  {
    using _told = tracker.closing(one)
    states.clear()
    expect(tracker.take().moved).toMatchObject([{ filter: 'f', position: 'start' }])
  }
  expect(tracker.take().moved).toEqual([])
})
