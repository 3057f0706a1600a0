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

/** Throws ModuleRefusal unless `readComponent` accepts the bytes and all core modules can be parsed. */
export function renameCoreNames(bytes: Uint8Array): Uint8Array {
  const renamer = new Renamer()
  renamer.write(bytes, 0, bytes.length, readComponent(bytes).pieces)
  return renamer.toBytes()
}

class Renamer {
  readonly #names: Map<string, string>
  readonly #parts: Uint8Array[] = []
  #length = 0

  constructor(names = new Map<string, string>()) {
    this.#names = names
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

  #writePiece(bytes: Uint8Array, piece: Piece): void {
    switch (piece.kind) {
      case 'custom':
        return
      case 'name':
        return this.#pushSized(new TextEncoder().encode(this.#rename(piece.name)))
      case 'section': {
        const content = new Renamer(this.#names)
        content.write(bytes, piece.contentStart, piece.end, piece.pieces)
        return this.#pushSection(bytes, piece.start, content)
      }
      case 'module': {
        const module = bytes.subarray(piece.contentStart, piece.end)
        const content = new Renamer(this.#names)
        content.write(module, 0, module.length, piecesOfModule(readModule(module, { allowGc: true })))
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
