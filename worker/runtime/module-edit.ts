/** A module with some of its sections written anew. */
import { ByteCursor, SECTION, encodeUnsigned } from '#core/wasm/index.ts'
import type { ModuleLayout } from '#core/wasm/index.ts'

/** The order in which sections must stand (WebAssembly 3.0 section 5.5.16). */
const SECTION_ORDER: number[] = [
  SECTION.type,
  SECTION.import,
  SECTION.function,
  SECTION.table,
  SECTION.memory,
  SECTION.tag,
  SECTION.global,
  SECTION.export,
  SECTION.start,
  SECTION.element,
  SECTION.dataCount,
  SECTION.code,
  SECTION.data,
]

export class ModuleEdit {
  readonly #bytes: Uint8Array
  readonly #contents = new Map<number, Uint8Array>()
  #isChanged = false

  constructor(layout: ModuleLayout) {
    this.#bytes = layout.bytes
    for (const { id, contentStart, end } of layout.sections) {
      if (id !== SECTION.custom) this.#contents.set(id, layout.bytes.subarray(contentStart, end))
    }
  }

  /** The content of a section as it stands now; undefined when the module has none. */
  content(id: number): Uint8Array | undefined {
    return this.#contents.get(id)
  }

  replace(id: number, parts: Uint8Array[]): void {
    this.#isChanged = true
    this.#contents.set(id, concatenate(parts))
  }

  /** Adds one item to the vector that a section is, and answers its index in there. */
  append(id: number, item: number[]): number {
    const content = this.content(id) ?? Uint8Array.of(0)
    const cursor = new ByteCursor(content)
    const count = cursor.u32()
    const items = content.subarray(cursor.offset)
    this.replace(id, [Uint8Array.from(encodeUnsigned(count + 1)), items, Uint8Array.from(item)])
    return count
  }

  /**
   * The same bytes when nothing was changed. Else without custom sections: no engine needs them, and offsets into the
   * code that they hold may be wrong now.
   */
  toBytes(): Uint8Array {
    if (!this.#isChanged) return this.#bytes
    const parts = [this.#bytes.subarray(0, 8)]
    for (const id of SECTION_ORDER) {
      const content = this.content(id)
      if (content !== undefined) parts.push(Uint8Array.from([id, ...encodeUnsigned(content.length)]), content)
    }
    return concatenate(parts)
  }
}

function concatenate(parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let offset = 0
  for (const part of parts) {
    whole.set(part, offset)
    offset += part.length
  }
  return whole
}
