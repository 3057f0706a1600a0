/** The place where a consumer begins or goes on: `earliest`, `latest`, a time, or a position. */
import type { Queryable } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { LOG_BEGIN, endPlace, firstPlace, placeAt } from './log.ts'
import { comparePlaces, formatPlace, parsePlace } from './place.ts'
import type { Place } from './place.ts'
import type { Start } from './repository.ts'

const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/
const PATH = '/from'

/** Throws `malformed`, and `gone` with the earliest position for one that is no longer kept. */
export async function startOf(db: Queryable, from: string): Promise<Start> {
  if (from === 'latest') return { place: await endPlace(db), notBeforeSeconds: null }
  if (from === 'earliest') return { place: LOG_BEGIN, notBeforeSeconds: null }
  if (TIME.test(from)) {
    const seconds = Date.parse(from) / 1000
    if (!Number.isFinite(seconds)) throw refusedField(PATH, 'must be a time that exists')
    return { place: await placeAt(db, seconds), notBeforeSeconds: seconds }
  }
  return { place: await keptPlace(db, from), notBeforeSeconds: null }
}

async function keptPlace(db: Queryable, from: string): Promise<Place> {
  if (!/^\d/.test(from)) throw refusedField(PATH, 'must be earliest, latest, a time (RFC 3339) or a position')
  const place = parsePlace(from, PATH)
  const end = await endPlace(db)
  const first = (await firstPlace(db)) ?? end
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
