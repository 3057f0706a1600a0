export { sentenceOf, transpileWith } from './transpile-with.ts'
export type { Generate, TranspileOptions, TranspiledComponent } from './transpile-with.ts'
