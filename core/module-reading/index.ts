export { describeExports, judgeModule } from './read-modules.ts'
export type { JudgedModule } from './read-modules.ts'
