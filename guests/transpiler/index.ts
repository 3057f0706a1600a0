export { sentenceOf, transpileComponent } from './transpile.ts'
export type { TranspiledComponent } from './transpile.ts'
