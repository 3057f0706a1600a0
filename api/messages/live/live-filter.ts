/** The messages that a follower of a channel wants, from the parameters of its stream. */
import { parseSubtopicFilter } from '../model/topics.ts'
import { parseWithout } from '../reader/filter.ts'
import type { FollowerOptions } from './follower.ts'

/** `subtopic` undefined: `byDefault`. Throws `malformed`. */
export function liveFilter(
  query: { subtopic?: string | undefined; without?: string | undefined },
  byDefault: string,
): Pick<FollowerOptions, 'filter' | 'withoutPublisher'> {
  const without = parseWithout(query)
  return {
    filter: without.has('subtopic') ? '' : parseSubtopicFilter(query.subtopic ?? byDefault),
    withoutPublisher: without.has('publisher'),
  }
}
