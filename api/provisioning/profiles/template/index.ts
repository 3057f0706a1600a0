export { MAX_OUTPUT_CHARS, evaluate } from './evaluate.ts'
export { parseTemplate } from './parse.ts'
export { TemplateFault } from './syntax.ts'
export type { Value } from './values.ts'
