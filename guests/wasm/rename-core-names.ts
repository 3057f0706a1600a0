/**
 * Replaces every name by which the core modules of a component are linked: exports and imports of the modules, exports and
 * arguments of core instances, aliases of core exports. These names are not visible outside of the component and may be any text,
 * and the transpiler writes them into a script unchanged. Equal names get equal replacements throughout the file, so the links
 * stay the same. Custom sections are removed: they contain names for debuggers.
 */
import { leb128 } from '#core/bytes/index.ts'
import { readComponent } from './component-reader.ts'
import type { Piece } from './component-reader.ts'
import { SECTION, readModule } from './module-reader.ts'
import type { ModuleLayout } from './module-reader.ts'

/**
 * Throws ModuleRefusal unless `readComponent` accepts the bytes and all core modules can be parsed. `isHollow`: every function of a core
 * module traps, and there are no data and elements: the result has the same links and types, and a fraction of the size.
 */
export function renameCoreNames(bytes: Uint8Array, { isHollow } = { isHollow: false }): Uint8Array {
  const renamer = new Renamer(new Map(), isHollow)
  renamer.write(bytes, 0, bytes.length, readComponent(bytes).pieces)
  return renamer.toBytes()
}

/** Magic and version. */
const HEADER_BYTES = 8
/** Sections that a module needs only for its functions. */
const HOLLOWED: ReadonlySet<number> = new Set([SECTION.custom, SECTION.element, SECTION.data, SECTION.dataCount])
/** A size, no locals, `unreachable` and `end`. */
const TRAPPING_BODY = Uint8Array.of(3, 0, 0x00, 0x0b)

class Renamer {
  readonly #names: Map<string, string>
  readonly #isHollow: boolean
  readonly #parts: Uint8Array[] = []
  #length = 0

  constructor(names: Map<string, string>, isHollow: boolean) {
    this.#names = names
    this.#isHollow = isHollow
  }

  /** Copies a range of the bytes, with its pieces renamed. */
  write(bytes: Uint8Array, start: number, end: number, pieces: readonly Piece[]): void {
    let copied = start
    for (const piece of pieces) {
      this.#push(bytes.subarray(copied, piece.start))
      this.#writePiece(bytes, piece)
      copied = piece.end
    }
    this.#push(bytes.subarray(copied, end))
  }

  writeHollow(layout: ModuleLayout): void {
    const { bytes } = layout
    this.#push(bytes.subarray(0, HEADER_BYTES))
    for (const { id, start, end } of layout.sections) {
      if (HOLLOWED.has(id)) continue
      if (id === SECTION.code) this.#pushHollowCode(layout.functionCount)
      else
        this.write(
          bytes,
          start,
          end,
          piecesOfModule(layout).filter((piece) => piece.start === start),
        )
    }
  }

  #pushHollowCode(functionCount: number): void {
    const count = leb128(functionCount)
    this.#push(Uint8Array.of(SECTION.code, ...leb128(count.length + functionCount * TRAPPING_BODY.length)))
    this.#push(count)
    for (let index = 0; index < functionCount; index++) this.#push(TRAPPING_BODY)
  }

  #writePiece(bytes: Uint8Array, piece: Piece): void {
    switch (piece.kind) {
      case 'custom':
        return
      case 'name':
        return this.#pushSized(new TextEncoder().encode(this.#rename(piece.name)))
      case 'section': {
        const content = new Renamer(this.#names, this.#isHollow)
        content.write(bytes, piece.contentStart, piece.end, piece.pieces)
        return this.#pushSection(bytes, piece.start, content)
      }
      case 'module': {
        const module = bytes.subarray(piece.contentStart, piece.end)
        const content = new Renamer(this.#names, this.#isHollow)
        const layout = readModule(module, { allowGc: true })
        if (this.#isHollow) content.writeHollow(layout)
        else content.write(module, 0, module.length, piecesOfModule(layout))
        return this.#pushSection(bytes, piece.start, content)
      }
    }
  }

  toBytes(): Uint8Array {
    const whole = new Uint8Array(this.#length)
    let offset = 0
    for (const part of this.#parts) {
      whole.set(part, offset)
      offset += part.length
    }
    return whole
  }

  #rename(name: string): string {
    const known = this.#names.get(name)
    if (known !== undefined) return known
    const replacement = `n${this.#names.size}`
    this.#names.set(name, replacement)
    return replacement
  }

  #pushSection(bytes: Uint8Array, start: number, content: Renamer): void {
    this.#push(bytes.subarray(start, start + 1))
    this.#push(leb128(content.#length))
    for (const part of content.#parts) this.#push(part)
  }

  #pushSized(content: Uint8Array): void {
    this.#push(leb128(content.length))
    this.#push(content)
  }

  #push(part: Uint8Array): void {
    this.#parts.push(part)
    this.#length += part.length
  }
}

function piecesOfModule(layout: ModuleLayout): Piece[] {
  return layout.sections.flatMap(({ id, start, contentStart, end }): Piece[] => {
    if (id === SECTION.custom) return [{ kind: 'custom', start, end }]
    if (id !== SECTION.import && id !== SECTION.export) return []
    const names = layout.names.filter((name) => name.start >= contentStart && name.end <= end)
    const pieces = names.map((name): Piece => ({ kind: 'name', ...name }))
    return [{ kind: 'section', start, contentStart, end, pieces }]
  })
}
