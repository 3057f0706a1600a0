export { Components } from './components.ts'
export { stageTranspilerCode } from './transpile.ts'
