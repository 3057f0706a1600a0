/** What a board shows: the content of a dashboard, which the server keeps and does not read. */
import { DEFAULT_RANGE, RANGES } from '../charts/ranges.ts'
import { MAX_CHOSEN } from '../charts/series.ts'
import type { SeriesFields } from '../charts/series.ts'

export const KINDS = ['chart', 'value', 'gauge', 'state', 'alarms', 'text'] as const
export type Kind = (typeof KINDS)[number]

/** Columns of a board on a wide screen. */
export const COLUMNS = 4
export const MAX_TILES = 60
const MAX_TEXT_CHARS = 4_000
const MAX_TITLE_CHARS = 200

export type Tile = {
  readonly id: string
  readonly kind: Kind
  readonly title: string
  /** Columns that it takes, 1 to 4. */
  readonly width: number
  /** Empty for alarms and a text. */
  readonly channel: string
  /** Only a chart can have several. */
  readonly series: readonly SeriesFields[]
  /** The ends of a gauge, or the numbers from which to which a state is good. */
  readonly min: number | undefined
  readonly max: number | undefined
  /** The text that makes a state good, that alarms have, or of a text. */
  readonly text: string
}

/** Whether a tile of this kind shows series of a channel. */
export const hasSeries = (kind: Kind): boolean => kind !== 'alarms' && kind !== 'text'

export type Board = { readonly range: string; readonly tiles: readonly Tile[] }

export const EMPTY_BOARD: Board = { range: '1d', tiles: [] }

export const DEFAULT_WIDTHS: Readonly<Record<Kind, number>> = {
  chart: 2,
  value: 1,
  gauge: 1,
  state: 1,
  alarms: 2,
  text: 1,
}

export function newTile(fields: Partial<Tile> & Pick<Tile, 'kind'>): Tile {
  return {
    id: crypto.randomUUID(),
    title: '',
    width: DEFAULT_WIDTHS[fields.kind],
    channel: '',
    series: [],
    min: undefined,
    max: undefined,
    text: '',
    ...fields,
  }
}

/** Formats a board as a dashboard keeps it. */
export function formatBoard({ range, tiles }: Board): Record<string, unknown> {
  return { version: 1, range, tiles: tiles.map((tile) => ({ ...tile })) }
}

/** Other programs keep dashboards too: what is no tile is left out. */
export function parseBoard(content: Record<string, unknown>): Board {
  const range = textOf(content['range'], DEFAULT_RANGE)
  const tiles = Array.isArray(content['tiles']) ? (content['tiles'] as unknown[]) : []
  return {
    range: RANGES[range] === undefined ? DEFAULT_RANGE : range,
    tiles: tiles.slice(0, MAX_TILES).flatMap(tileOf),
  }
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null
const textOf = (value: unknown, otherwise = '') => (typeof value === 'string' ? value : otherwise)
const numberOf = (value: unknown) => (typeof value === 'number' && Number.isFinite(value) ? value : undefined)

function tileOf(value: unknown, index: number): Tile[] {
  if (!isObject(value)) return []
  const kind = KINDS.find((known) => known === value['kind'])
  if (kind === undefined) return []
  const width = numberOf(value['width']) ?? DEFAULT_WIDTHS[kind]
  const series = Array.isArray(value['series']) ? (value['series'] as unknown[]) : []
  return [
    {
      id: textOf(value['id'], `tile-${index}`),
      kind,
      title: textOf(value['title']).slice(0, MAX_TITLE_CHARS),
      width: Math.min(Math.max(Math.round(width), 1), COLUMNS),
      channel: textOf(value['channel']),
      series: series.filter(isObject).slice(0, MAX_CHOSEN).map(seriesFieldsOf),
      min: numberOf(value['min']),
      max: numberOf(value['max']),
      text: textOf(value['text']).slice(0, MAX_TEXT_CHARS),
    },
  ]
}

const seriesFieldsOf = (value: Record<string, unknown>): SeriesFields => ({
  publisher: textOf(value['publisher']),
  subtopic: textOf(value['subtopic']),
  name: textOf(value['name']),
  unit: textOf(value['unit']),
})

/** Moves a tile before or after its neighbour. */
export function moved({ tiles, ...board }: Board, id: string, by: number): Board {
  const from = tiles.findIndex((tile) => tile.id === id)
  const tile = tiles[from]
  if (tile === undefined) return { ...board, tiles }
  const others = tiles.filter((one) => one !== tile)
  const to = Math.min(Math.max(from + by, 0), others.length)
  return { ...board, tiles: others.toSpliced(to, 0, tile) }
}

export const withTile = (board: Board, tile: Tile): Board => {
  const isKnown = board.tiles.some(({ id }) => id === tile.id)
  return {
    ...board,
    tiles: isKnown ? board.tiles.map((one) => (one.id === tile.id ? tile : one)) : [...board.tiles, tile],
  }
}

export const withoutTile = (board: Board, id: string): Board => ({
  ...board,
  tiles: board.tiles.filter((tile) => tile.id !== id),
})

/** The newest record of a series. */
export type Newest = { readonly value?: number; readonly string_value?: string; readonly bool_value?: boolean }

/** Whether the newest record of a state is good. Without a rule, true is good, and numbers and texts are neither. */
export function goodnessOf({ min, max, text }: Tile, newest: Newest): 'good' | 'bad' | 'neither' {
  const isRuled = min !== undefined || max !== undefined
  if (newest.value !== undefined && isRuled)
    return newest.value >= (min ?? -Infinity) && newest.value <= (max ?? Infinity) ? 'good' : 'bad'
  const word = newest.string_value ?? (newest.bool_value === undefined ? undefined : String(newest.bool_value))
  if (word !== undefined && text !== '') return word === text ? 'good' : 'bad'
  if (newest.bool_value !== undefined) return newest.bool_value ? 'good' : 'bad'
  return 'neither'
}

/** The part of a gauge that a value fills, from 0 to 1. */
export function fillOf({ min = 0, max = 100 }: Tile, value: number): number {
  return max <= min ? 0 : Math.min(Math.max((value - min) / (max - min), 0), 1)
}
