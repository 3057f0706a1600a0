/**
 * Bounds the size of pages in responses (decision 79): at most MAX_PAGE_BYTES, with a `limit` from which the offset of the next
 * page follows, and a `next` after the last item that is left. A schema with `total`, `offset`, `limit` and an array is a page, so routes need no code for it.
 */
import { NextCursor } from '#core/cursor.ts'
import { MAX_PAGE_BYTES } from '#core/page.ts'

type Page = { total?: unknown; offset?: unknown; limit?: unknown; next?: unknown } & Record<string, unknown>
type ObjectSchema = { properties?: Record<string, { type?: unknown }>; anyOf?: unknown }
type Stringify = (value: unknown) => string

/** The arrays of a page that a response schema describes, alone or in a union; empty when it describes no page. */
export function pageArrays(schema: unknown): string[] {
  const { properties, anyOf } = (schema ?? {}) as ObjectSchema
  if (Array.isArray(anyOf)) return anyOf.flatMap(pageArrays)
  if (properties === undefined || !['total', 'offset', 'limit'].every((name) => name in properties)) return []
  return Object.keys(properties).filter((name) => properties[name]?.type === 'array')
}

/** Serializes responses of routes with pages. `arrays` comes from `pageArrays`; a page may have several arrays. */
export function pageStringify(arrays: readonly string[], stringify: Stringify): Stringify {
  return (value) => {
    if (!isPage(value)) return stringify(value)
    const shown = arrays.filter((name) => Array.isArray(value[name]))
    const [first] = shown
    if (first === undefined) return stringify(value)
    const items = value[first] as unknown[]
    const whole = stringify(ended(value, countItems(items)))
    // Trees are bounded where they are read: omitting a branch here would leave a gap in the page.
    if (Buffer.byteLength(whole) <= MAX_PAGE_BYTES || items.some(isBranch)) return whole
    const shortened = (count: number) =>
      stringify({
        ...ended(value, count, count < items.length ? count : undefined),
        ...Object.fromEntries(shown.map((name) => [name, (value[name] as unknown[]).slice(0, count)])),
      })
    let [fits, tooMany] = [1, items.length]
    let text = shortened(1)
    while (tooMany - fits > 1) {
      const middle = Math.floor((fits + tooMany) / 2)
      const tried = shortened(middle)
      if (Buffer.byteLength(tried) > MAX_PAGE_BYTES) tooMany = middle
      else [fits, text] = [middle, tried]
    }
    return text
  }
}

function isPage(value: unknown): value is Page {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && 'limit' in value
}

/**
 * The page of `count` items, with the cursor of the next page; with fewer items than its limit it was cut. `cutTo`: the number of its
 * items if it was cut here.
 */
function ended(page: Page, count: number, cutTo?: number): Page {
  if (!(page.next instanceof NextCursor)) return limited(page, count)
  const { next: end, ...others } = page
  const next = end.after(cutTo)
  if (next === undefined) return others
  const { limit } = others
  return { ...others, ...(typeof limit === 'number' && count > 0 && count < limit ? { limit: count } : {}), next }
}

/** Sets `limit` to the number of items when the page was cut before the requested limit and more items follow. */
function limited(page: Page, count: number): Page {
  const { total, offset, limit } = page
  if (typeof limit !== 'number' || typeof total !== 'number' || count === 0) return page
  const isFull = count >= limit && limit > 0
  return isFull || (typeof offset === 'number' ? offset : 0) + count >= total ? page : { ...page, limit: count }
}

type Branch = { children: unknown[] }

function isBranch(item: unknown): item is Branch {
  return typeof item === 'object' && item !== null && Array.isArray((item as Branch).children)
}

/** Counts the items of a tree, with those in `children`. */
function countItems(items: readonly unknown[]): number {
  return items.reduce<number>((sum, item) => sum + 1 + (isBranch(item) ? countItems(item.children) : 0), 0)
}
