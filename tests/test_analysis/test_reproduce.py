"""reproduce.py: what it runs, skips, resumes and reports."""
import csv
import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from experiments import Store
from experiments.execution import Active, LocalJobs, clock, devices, interruptible
from experiments.forked import Forked
from experiments.work_folder import open_log, time_left

RUNS = 'work_dirs/reproduce/runs'


def calls(place, name):
    path = place / 'work_dirs/reproduce' / name / 'calls'
    return path.read_text().splitlines() if path.exists() else []


def test_a_table_from_nothing(reproduce):
    code, out, _ = reproduce('table1', '--seeds', '3', '--jobs', '2')

    assert code == 0
    assert '7 runs: 0 finished, 7 to do.' in out  # nothing is random in zero-shot
    assert '[7/7] learn_shapes' in out
    record = json.loads((reproduce.place / RUNS / 'learn_shapes-head.k=3_seed2.json').read_text())
    assert record['options'] == ['model.head.k=3'] and record['seed'] == 2
    assert record['metrics']['czsl/auc'] == 83 and record['val_metrics'] == {
        'czsl/auc': 4.0, 'step': 2}
    assert record['val_auc'] == [3.0, 4.0, 2.0]
    assert record['commit'] and 'seconds' in record
    # AUC: baseline 60, 61, 62; K=3 80, 81.5, 83; zero-shot 60.
    text = (reproduce.place / 'work_dirs/reproduce/table1_shapes.md').read_text()
    rows = {line.split(' | ')[0].strip('| '): line for line in text.splitlines()}
    assert '| 61.0 ± 1.0 | reference |' in rows['three & a half']
    assert '| 81.5 ± 1.5 | +20.5 ± 1.2 | 70.7 / 76.0 / 58.5 / 46.6 |' in rows['K=3']
    assert '| 1, nothing is random | 60.0 |' in rows['zero-shot']
    assert '| −1.0 ± 2.5 |' in rows['zero-shot']
    assert 'another paper' not in rows  # its numbers are of another dataset
    for ending in ('csv', 'tex', 'png', 'svg'):
        assert (reproduce.place / f'work_dirs/reproduce/table2_shapes.{ending}').stat().st_size
    assert r'three \& a half' in (
        reproduce.place / 'work_dirs/reproduce/table1_shapes.tex').read_text()
    with open(reproduce.place / 'work_dirs/reproduce/table2_shapes.csv') as file:
        lines = {line['row']: line for line in csv.DictReader(file)}
    assert float(lines['K=3']['open_auc_mean']) == 61.5
    assert float(lines['K=3']['open_auc_difference']) == 21.5  # to table 2's own first row


def test_finished_runs_are_skipped_and_shared_by_tables(reproduce):
    reproduce('table1', '--seeds', '2')

    _, out, _ = reproduce('table1', '--seeds', '2')
    assert '5 runs: 5 finished, 0 to do.' in out
    # K=1 is what the config says anyway, so it is the baseline's run.
    _, out, _ = reproduce('4a', '--rows', 'k=1', '--seeds', '2')
    assert '2 runs: 2 finished, 0 to do.' in out
    assert len(calls(reproduce.place, 'learn_shapes_seed0')) == 1


def test_a_failure_is_named_and_the_rest_goes_on(reproduce):
    code, out, err = reproduce('table4a', '--seeds', '1', '--jobs', '1')

    assert code == 1
    assert ('FAILED learn_shapes-head.k=7_seed0: error: no space left on the moon (log: '
            'work_dirs/reproduce/learn_shapes-head.k=7_seed0/output.log)') in err
    assert '| K=1 | 1 | 60.0 |' in out and '| K=7 | not yet run | – |' in out
    assert 'in percent: seed 0 alone.' in out

    code, out, _ = reproduce('table4a', '--seeds', '1')
    assert code == 0 and '2 runs: 1 finished, 1 to do.' in out
    first, second = calls(reproduce.place, 'learn_shapes-head.k=7_seed0')
    assert first == second and '--resume' in second


def test_a_change_that_does_not_matter_is_accepted_by_name(reproduce, home):
    reproduce('4a', '--rows', 'K=1', '--seeds', '2')
    config = home / 'configs' / 'learn_shapes.py'
    config.write_text(config.read_text() + 'optim_wrapper = dict(lr=1)\n')
    flags = ['4a', '--rows', 'K=1', '--seeds', '2', '--collect-only']

    _, out, _ = reproduce(*flags, '--accept-changed', 'model')
    assert 'CHANGED learn_shapes_seed1' in out and 'Took over' not in out
    _, out, _ = reproduce(*flags, '--accept-changed', 'model', 'optim_wrapper')
    assert 'Took over 2 records' in out and 'CHANGED' not in out and '| K=1 | 2 | ' in out
    _, out, _ = reproduce(*flags)
    assert 'CHANGED' not in out and '| K=1 | 2 | ' in out
    record = json.loads((reproduce.place / 'work_dirs/reproduce/runs/learn_shapes_seed1.json'
                         ).read_text())
    assert record['accepted'] == ['optim_wrapper'] and record['metrics']['czsl/auc'] == 61.0


def test_a_changed_config_is_noticed_and_named(reproduce, home):
    reproduce('4a', '--rows', 'K=1', '--seeds', '2')
    config = home / 'configs' / 'learn_shapes.py'
    config.write_text(config.read_text() + 'optim_wrapper = dict(lr=1)\n')

    for flags in ([], ['--collect-only']):
        code, out, _ = reproduce('4a', '--rows', 'K=1', '--seeds', '2', *flags)
        assert 'CHANGED learn_shapes_seed1: its record was made with another config (differs in ' \
               'optim_wrapper)' in out
        assert '| K=1 | 0 of 2, 2 of another config | – |' in out
    assert len(calls(reproduce.place, 'learn_shapes_seed1')) == 1

    _, out, _ = reproduce('4a', '--rows', 'K=1', '--seeds', '2', '--rerun-changed')
    assert 'an unfinished run of another config is kept as' in out
    assert '| K=1 | 2 | 60.5 ± 0.7 |' in out
    assert len(calls(reproduce.place, 'learn_shapes_seed1')) == 1  # in a folder of its own


def test_collecting_writes_tables_and_runs_nothing(reproduce):
    code, out, _ = reproduce('table1', '--dataset', 'utzappos', '--collect-only')

    assert code == 0
    assert 'not yet run: that needs the data and a GPU.' in out
    assert '| another paper | paper only | – | – | – | – | – | 9.0 / 9.0 / 9.0 / 9.0 |' in out
    assert not (reproduce.place / 'work_dirs/reproduce/table1_utzappos.png').exists()
    assert not list((reproduce.place / 'work_dirs').glob('*/*/calls'))


def test_a_dry_run_prints_what_one_would_type(reproduce, home):
    code, out, _ = reproduce('4a', '--seeds', '1', '--dry-run', '--cfg-options', 'a.b=[1,2]')

    assert code == 0
    assert (f'# table4a, K=7, seed 0\npython {home}/tools/train.py {home}/configs/learn_shapes.py '
            '--resume --work-dir work_dirs/reproduce/learn_shapes-head.k=7-a.b=12-') in out
    assert "--cfg-options randomness.seed=0 model.head.k=7 'a.b=[1,2]'" in out
    assert not (reproduce.place / 'work_dirs').exists()


@pytest.mark.parametrize('flags, message', [
    (['table5'], "There is no table 'table5' to run; there are table1, table2"),
    (['table11'], 'Table 11 has no rows on shapes, only on utzappos.'),
    (['table1', '--dataset', 'mnist'], '--dataset must be one of mitstates, utzappos'),
    (['table1', '--rows', 'K=4'], "Table 1 has no row 'K=4' to run. Its rows: 'zero-shot'"),
    (['table1', '--reference', 'K=4'], "has no row 'K=4'"),
    (['table1', '--cfg-options', 'lr'], "written KEY=VALUE, got 'lr'"),
    (['table1', '--launcher', 'slurm'], 'needs the command sbatch'),
])
def test_mistakes_are_said_in_words(reproduce, monkeypatch, flags, message):
    monkeypatch.setenv('PATH', '/usr/bin')
    code, _, err = reproduce(*flags)
    assert code == 2 and message in err and 'Traceback' not in err


@pytest.mark.parametrize('content', [b'{"config": "a.py"', b'\xff\xfe', b'[]'])
def test_a_damaged_record_is_named(reproduce, content):
    folder = reproduce.place / RUNS
    folder.mkdir(parents=True)
    (folder / 'bad.json').write_bytes(content)
    code, _, err = reproduce('table1')
    assert code == 2 and 'bad.json: it is not the record of a run' in err


@pytest.mark.slow
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_keeps_what_is_finished_and_ends_the_rest(reproduce, home, number):
    """The real signal to a real process: K=9 hangs, the others are quick."""
    process = subprocess.Popen(
        [sys.executable, str(home / 'tools/analysis_tools/reproduce.py'), '4a', '4b', '--rows',
         'K=1', 'K=9', '--seeds', '1'], cwd=reproduce.place, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        # What runs in the background or under nohup is born deaf to it, and so are its children.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    started = reproduce.place / 'work_dirs/reproduce/learn_shapes-head.k=9_seed0/started'
    finished = reproduce.place / RUNS / 'learn_shapes_seed0.json'
    until = time.time() + 600  # a busy machine is slow to start three processes
    while not (started.exists() and finished.exists()) and time.time() < until:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert 'Finished runs are kept; run the same command again to continue.' in err
    assert 'Traceback' not in err
    assert '| K=1 | 1 | 60.0 |' in out and '| K=9 | not yet run |' in out
    assert json.loads(finished.read_text())['metrics']['czsl/auc'] == 60
    open_log(started.parent).close()  # nobody is at work there any more


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            signal.raise_signal(signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_two_processes_do_not_work_in_one_folder(reproduce):
    folder = reproduce.place / 'work_dirs/reproduce/learn_shapes_seed0'
    folder.mkdir(parents=True)
    with open_log(folder):
        code, out, err = reproduce('table1', '--seeds', '1')
    assert code == 1 and '[3/3]' in out
    assert 'FAILED learn_shapes_seed0: another process is at work in' in err
    assert '| K=3 | 1 | 80.0 |' in out and not calls(reproduce.place, 'learn_shapes_seed0')


def test_half_files_of_a_killed_run_cost_that_run_at_most(reproduce):
    folder = reproduce.place / 'work_dirs/reproduce/learn_shapes_seed0'
    (folder / 'then' / 'vis_data').mkdir(parents=True)
    (folder / 'run.json').write_text('{"seconds": 1')
    code, out, _ = reproduce('table1', '--seeds', '1')
    # Of an unknown config: kept, and not gone on with.
    assert code == 0 and 'is kept as work_dirs/reproduce/learn_shapes_seed0.' in out

    other = reproduce.place / 'work_dirs/reproduce/learn_shapes_seed1'
    (other / 'then' / 'vis_data').mkdir(parents=True)
    (other / 'then' / 'vis_data' / 'scalars.json').write_text('{"czsl/auc": 9.0, "step": 9}\n{"cz')
    code, out, _ = reproduce('table1', '--seeds', '2')
    assert code == 0
    record = json.loads((reproduce.place / RUNS / 'learn_shapes_seed1.json').read_text())
    assert record['val_auc'] == [3.0, 4.0, 2.0, 9.0]


def test_the_last_attempt_is_the_one_that_is_reported(reproduce, home):
    reproduce('table4a', '--seeds', '1', '--rows', 'K=7')
    tool = home / 'tools' / 'train.py'
    tool.write_text('import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n')
    _, _, err = reproduce('table4a', '--seeds', '1', '--rows', 'K=7')
    assert 'it was killed by SIGKILL: out of memory?' in err and 'moon' not in err
    tool.write_text('print("ValueError: new")\nraise SystemExit(1)\n')
    _, _, err = reproduce('table4a', '--seeds', '1', '--rows', 'K=7')
    assert 'FAILED learn_shapes-head.k=7_seed0: ValueError: new' in err


@pytest.mark.parametrize('gpus, named, expected', [
    (0, None, [None, None]), (1, '3', [None, None]), (2, None, ['0', '1', '0']),
    (2, '5,7', ['5', '7', '5']), (3, '', ['0', '1', '2', '0'])])
def test_runs_are_spread_over_the_gpus_that_may_be_used(gpus, named, expected):
    environment = {} if named is None else {'CUDA_VISIBLE_DEVICES': named}
    assert [devices(slot, gpus, environment).get('CUDA_VISIBLE_DEVICES')
            for slot in range(len(expected))] == expected


OWN = """
mine:
  title: My idea
  world: closed
  reference: theirs
  datasets: [shapes]
  rows:
  - {name: theirs, config: 'learn_{dataset}.py'}
  - {name: mine, config: 'my_{dataset}.py', options: [model.head.k=3]}
"""


def test_a_table_of_ones_own(reproduce):
    (reproduce.place / 'own').mkdir()
    (reproduce.place / 'own' / 'my_shapes.py').write_text(
        'model = dict(head=dict(k=2))\ntrain_cfg = dict(max_epochs=1)\n')
    (reproduce.place / 'own' / 'tables.yml').write_text(OWN)
    code, out, _ = reproduce('mine', '--tables', 'own/tables.yml', '--seeds', '2')
    assert code == 0
    assert '| theirs | 2 | 60.5 ± 0.7 | 60.5 ± 0.7 | 60.5 ± 0.7 | 60.5 ± 0.7 | reference |' in out
    assert '| 80.8 ± 1.1 | +20.2 ± 3.2 |' in out
    assert (reproduce.place / RUNS / 'my_shapes-head.k=3_seed1.json').exists()

    for text, message in (
            ('title: x, rows: [{name: a}]', "mine: it has no 'datasets'"),
            ('title: x, rows: [{name: 1}]', 'mine: row 1: name is 1'),
            ('title: x, world: open, datasets: [shapes], rows: [{name: a, nam: b}]',
             "a row with 'nam'")):
        (reproduce.place / 'own' / 'tables.yml').write_text(f'mine: {{{text}}}')
        code, _, err = reproduce('mine', '--tables', 'own/tables.yml')
        assert code == 2 and message in err


@pytest.mark.parametrize('text, seconds', [
    ('eta: 0:01:40', 100), ('eta: 0:00:09 x\neta: 1 day, 2:00:01  time', 93601), ('loss: 3', None),
    ('eta: 3 days, 0:00:00', 259200)])
def test_time_left_is_read_from_the_log(tmp_path, text, seconds):
    (tmp_path / 'log').write_text('x' * 10000 + text + '\n')
    assert time_left(tmp_path / 'log') == seconds


def test_time_left_counts_what_waits(tmp_path):
    (tmp_path / 'output.log').write_text('eta: 0:01:40')
    jobs = LocalJobs(Store(tmp_path), tmp_path, tmp_path, jobs=2)
    assert jobs.remaining(3) == 'time left not known yet'
    jobs.active = [Active(None, None, None, tmp_path, slot, time.time() - 100) for slot in (0, 1)]
    # Two with 100 s left, three of 200 s to come, two at a time.
    assert jobs.remaining(3) == f'about {clock(400)} left'


def fake(folder, name, body):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'#!{sys.executable}\n{body}')
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


@pytest.mark.slow
def test_slurm_gets_one_job_a_run_that_writes_its_own_record(reproduce, home, monkeypatch):
    bin_folder = home.parent / 'bin'
    fake(bin_folder, 'sbatch', '''import json, pathlib, sys
log = pathlib.Path('submitted')
jobs = log.read_text().splitlines() if log.exists() else []
log.write_text(chr(10).join([*jobs, json.dumps(sys.argv[1:])]))
print(f'{41 + len(jobs)};cluster')''')
    fake(bin_folder, 'squeue', 'print("PENDING")')
    monkeypatch.setenv('PATH', f'{bin_folder}:{os.environ["PATH"]}')
    flags = ('4a', '--seeds', '2', '--rows', 'K=1', '--launcher', 'slurm', '--partition', 'big',
             '--slurm-args=--gres=gpu:2 --time=1:00:00')

    code, out, _ = reproduce(*flags)

    assert code == 0 and 'learn_shapes_seed1: job 42' in out and '--collect-only' in out
    first, second = map(json.loads, (reproduce.place / 'submitted').read_text().splitlines())
    assert first[first.index('--partition') + 1] == 'big'
    assert '--gres=gpu:2' in first and '--time=1:00:00' in first
    _, out, _ = reproduce(*flags)  # nothing is submitted twice
    assert 'job 42 is pending' in out
    assert len((reproduce.place / 'submitted').read_text().splitlines()) == 2

    # The job's own command, word for word.
    done = subprocess.run(second[second.index('--wrap') + 1], shell=True, cwd=reproduce.place,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.stem for path in (reproduce.place / RUNS).glob('*.json')] == ['learn_shapes_seed1']
    _, out, _ = reproduce(*flags[:5], '--collect-only', '--seeds', '2')
    assert '| K=1 | 1 of 2 | 61.0 |' in out


def test_a_job_that_slurm_refuses_is_reported(reproduce, home, monkeypatch):
    bin_folder = home.parent / 'bin'
    fake(bin_folder, 'sbatch', 'import sys; sys.exit("no such partition")')
    monkeypatch.setenv('PATH', f'{bin_folder}:{os.environ["PATH"]}')
    code, _, err = reproduce('4a', '--seeds', '1', '--launcher', 'slurm')
    assert code == 1 and 'sbatch refused it: no such partition' in err


def test_a_queue_that_does_not_answer_gets_nothing_twice(reproduce, home, monkeypatch):
    bin_folder = home.parent / 'bin'
    fake(bin_folder, 'sbatch', 'print(41)')
    fake(bin_folder, 'squeue', 'import sys; sys.exit("Unable to contact slurm controller")')
    monkeypatch.setenv('PATH', f'{bin_folder}:{os.environ["PATH"]}')
    flags = ('4a', '--seeds', '1', '--rows', 'K=1', '--launcher', 'slurm')
    assert reproduce(*flags)[0] == 0
    code, out, err = reproduce(*flags)
    assert code == 1 and 'Unable to contact' in err and 'learn_shapes_seed0: job' not in out
    fake(bin_folder, 'squeue', 'import sys; sys.exit("slurm_load_jobs error: Invalid job id")')
    assert reproduce(*flags)[0] == 0


def test_forked_runs_are_those_that_one_would_type(reproduce, monkeypatch):
    warmed = []
    monkeypatch.setattr(reproduce.module, 'warm_up', lambda: warmed.append(True))
    here = os.getpid(), os.environ.get('OMP_NUM_THREADS')

    code, _, err = reproduce('table4a', '--seeds', '2', '--fork')
    assert code == 1 and 'FAILED learn_shapes-head.k=7_seed0: error: no space left' in err
    code, out, _ = reproduce('table4a', '--seeds', '2', '--fork')

    assert code == 0 and '4 runs: 2 finished, 2 to do.' in out and warmed
    assert '| K=1 | 2 | 60.5 ± 0.7 |' in out
    first, second = calls(reproduce.place, 'learn_shapes-head.k=7_seed0')
    assert first == second and '--resume' in second
    assert here == (os.getpid(), os.environ.get('OMP_NUM_THREADS'))


def test_a_forked_run_can_be_ended_and_waited_for(tmp_path):
    (tmp_path / 'hang.py').write_text('import time\nprint("hangs", flush=True)\ntime.sleep(60)\n')
    with open(tmp_path / 'log', 'w') as log:
        run = Forked([sys.executable, str(tmp_path / 'hang.py')], log,
                     {**os.environ, 'OMP_NUM_THREADS': '1'})
    with pytest.raises(subprocess.TimeoutExpired):
        run.wait(timeout=0.2)
    assert run.poll() is None
    run.terminate()
    assert run.wait(timeout=30) == run.returncode == -signal.SIGTERM
