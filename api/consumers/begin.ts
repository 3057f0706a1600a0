/** The place where a consumer begins or goes on: `earliest`, `latest`, a time, or a position. */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { LOG_BEGIN, firstPlace, nextPlace, placeAt } from './log.ts'
import { comparePlaces, findPlace, formatPlace } from './place.ts'
import type { Place } from './place.ts'
import type { Start } from './repository.ts'

const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/
const PATH = '/from'

/** Throws `malformed`, and `gone` with the earliest position for one that is no longer kept. */
export async function startOf(tx: Transaction, from: string): Promise<Start> {
  if (from === 'latest') return { place: await nextPlace(tx), notBeforeSeconds: null }
  if (from === 'earliest') return { place: LOG_BEGIN, notBeforeSeconds: null }
  if (TIME.test(from)) {
    const seconds = Date.parse(from) / 1000
    if (!Number.isFinite(seconds)) throw refusedField(PATH, 'must be a time that exists')
    return { place: await placeAt(tx, seconds), notBeforeSeconds: seconds }
  }
  return { place: await keptPlace(tx, from), notBeforeSeconds: null }
}

async function keptPlace(tx: Transaction, from: string): Promise<Place> {
  const place = findPlace(from)
  if (place === undefined)
    throw refusedField(
      PATH,
      'must be earliest, latest, a time (RFC 3339), such as 2026-11-30T12:00:00Z, or the position of a message',
    )
  const end = await nextPlace(tx)
  const first = (await firstPlace(tx)) ?? end
  if (comparePlaces(place, first) < 0) {
    const earliest = formatPlace(first)
    throw new ServiceError('gone', `messages before ${earliest} are no longer kept for consumers`, {
      details: [{ path: PATH, message: `the earliest position is ${earliest}` }],
    })
  }
  if (comparePlaces(place, end) > 0)
    throw refusedField(PATH, `must not be after the last message: the end is ${formatPlace(end)}`)
  return place
}
