export { transpileComponent } from './transpile.ts'
export { sentenceOf } from '../transpiled/index.ts'
export type { TranspiledComponent } from '../transpiled/index.ts'
