export { Components, listComponentFiles } from './components.ts'
export { stageTranspilerCode } from './transpile.ts'
