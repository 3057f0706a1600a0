export { leb128, leb128Length, writeLeb128 } from './leb128.ts'
export { parseSize } from './size.ts'
export { bytesOf, parseBase64, textOrBytes, wholeCharactersLength } from './text-or-bytes.ts'
export type { Base64, TextOrBytes } from './text-or-bytes.ts'
