/** The series of a channel: which messages are theirs, how they are named, and how an address names them. */
import type { Query } from '../../../api/call.ts'
import { formatJson } from '../../../api/json.ts'
import { BETWEEN_PARTS, BETWEEN_SERIES } from '../../../shell/chosen-series.ts'

export type Series = {
  readonly key: string
  readonly name: string
  readonly unit: string
  readonly publisher: string
  readonly subtopic: string
}

/** What identifies a series, as the API shows it. */
export type SeriesFields = {
  readonly name?: string
  readonly unit?: string
  readonly publisher: string
  readonly subtopic?: string
}

export const seriesOf = ({ name = '', unit = '', publisher, subtopic = '' }: SeriesFields): Series => ({
  key: formatJson([publisher, subtopic, name, unit]),
  name,
  unit,
  publisher,
  subtopic,
})

/** The query of one request has at most so many names, and so many publishers. */
export const MAX_CHOSEN = 100

type SeriesFilter = Pick<
  Query<'GET /{domain_id}/channels/{channel_id}/messages'>,
  'name' | 'publisher' | 'subtopic' | 'without'
>

/**
 * The least that a query selects for all of these series, at most `MAX_CHOSEN` of them. An empty value of a filter would select everything:
 * what all series lack is asked for by `without`.
 */
export function filterOf(series: readonly Series[]): SeriesFilter {
  const [publishers, subtopics, names] = (['publisher', 'subtopic', 'name'] as const).map((field) => [
    ...new Set(series.map((one) => one[field])),
  ]) as [string[], string[], string[]]
  const isLacked = (values: readonly string[]) => values.length === 1 && values[0] === ''
  const lacking = [isLacked(publishers) ? 'publisher' : '', isLacked(subtopics) ? 'subtopic' : '']
  const without = lacking.filter((one) => one !== '').join(',')
  return {
    ...(names.length === 0 || names.includes('') ? {} : { name: names.join(',') }),
    ...(publishers.length === 0 || publishers.includes('') ? {} : { publisher: publishers.join(',') }),
    ...(subtopics.length !== 1 || subtopics[0] === '' ? {} : { subtopic: subtopics[0] as string }),
    ...(without === '' ? {} : { without }),
  }
}

const naturally = new Intl.Collator('en', { numeric: true, sensitivity: 'base' })

/** `pump 9` before `pump 10`. */
export const naturalOrder = (one: string, other: string) => naturally.compare(one, other)

/** The name of a series, with that of its device where it must be told. */
export type NamedSeries = Series & { readonly label: string }

/** `isChosen`: some of the channel's series, so that others may have the same name. */
export function namedSeries(
  series: readonly Series[],
  deviceName: (publisher: string) => string,
  isChosen: boolean,
): NamedSeries[] {
  const own = ({ name, subtopic }: Series) =>
    [subtopic, name === '' ? 'value' : name].filter((part) => part !== '').join(' ')
  const isOfSeveral = isChosen || new Set(series.map(({ publisher }) => publisher)).size > 1
  return series
    .map((one) => ({ ...one, label: isOfSeveral ? `${deviceName(one.publisher)} ${own(one)}` : own(one) }))
    .toSorted((one, other) => naturalOrder(one.label, other.label) || naturalOrder(one.key, other.key))
}

/** The chosen series of an address, undefined without a choice. What is no series is left out. */
export function parseChoice(text: string): Series[] | undefined {
  if (text === '') return undefined
  return text
    .split(BETWEEN_SERIES, MAX_CHOSEN)
    .filter((part) => part !== '')
    .flatMap((part) => {
      try {
        const [publisher = '', name = '', unit = '', subtopic = ''] = part.split(BETWEEN_PARTS).map(decodeURIComponent)
        return [seriesOf({ publisher, name, unit, subtopic })]
      } catch {
        return []
      }
    })
}
