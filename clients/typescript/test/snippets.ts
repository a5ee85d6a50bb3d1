import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The directory of the package. */
export const root = fileURLToPath(new URL('../..', import.meta.url))

/** Compiles programs of a page, with the strictness of the client, into a folder of dist. Returns the paths of the results. */
export function compile(folder: string, programs: string[]): string[] {
  const dir = join(root, 'dist', folder)
  rmSync(dir, { recursive: true, force: true })
  mkdirSync(dir)
  programs.forEach((program, i) => writeFileSync(join(dir, `${i}.ts`), program))
  const { compilerOptions } = JSON.parse(readFileSync(join(root, 'tsconfig.json'), 'utf8'))
  writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions: { ...compilerOptions, outDir: '.', noUnusedLocals: false, exactOptionalPropertyTypes: true }, files: programs.map((_, i) => `${i}.ts`) }))
  const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc')
  execFileSync(process.execPath, [tsc, '-p', dir], { stdio: ['ignore', process.stderr, 'inherit'] })
  return programs.map((_, i) => join(dir, `${i}.js`))
}
