export { leb128, leb128Length, writeLeb128 } from './leb128.ts'
export { parseSize } from './size.ts'
