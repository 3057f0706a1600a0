/** A maximum for the memory of a module. */
import { leb128 } from '#core/bytes/index.ts'
import type { ModuleLayout } from '../wasm/index.ts'

/** The module with this maximum for its only memory. */
export function withMemoryMaximum({ bytes, sections, memories }: ModuleLayout, maxPages: number): Buffer<ArrayBuffer> {
  const [limits, ...more] = memories
  const section = sections.find(({ contentStart, end }) => limits && limits.start >= contentStart && limits.start < end)
  if (limits === undefined || section === undefined || more.length > 0) throw new Error('the module has one memory')
  const content = Buffer.from([1, limits.is64 ? 5 : 1, ...leb128(limits.min), ...leb128(maxPages)])
  const head = Buffer.from([section.id, ...leb128(content.length)])
  return Buffer.concat([bytes.subarray(0, section.start), head, content, bytes.subarray(section.end)])
}
