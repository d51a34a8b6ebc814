"""The public modules whose docstrings make up PyDocs.

A function belongs to the first module of its package that lists it.
"""

__all__ = ["MODULES"]

_STANDARD = """
    argparse array ast asyncio atexit audioop base64 bdb binascii bisect builtins bz2
    calendar cmath codecs codeop collections colorsys compileall configparser contextlib
    contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis doctest
    email.header email.utils enum errno faulthandler fileinput fnmatch fractions ftplib
    functools gc getopt getpass gettext glob graphlib gzip hashlib heapq hmac html
    http.client imaplib importlib importlib.metadata importlib.resources importlib.util
    inspect io ipaddress itertools json keyword linecache locale logging logging.config lzma
    mailbox marshal math mimetypes mmap modulefinder multiprocessing netrc numbers operator
    os os.path pathlib pdb pickle pickletools pkgutil platform plistlib poplib pprint profile
    py_compile pyclbr pydoc queue quopri random re reprlib runpy sched secrets select
    selectors shelve shlex shutil signal site smtplib socket sqlite3 ssl stat statistics
    string struct subprocess symtable sys sysconfig tabnanny tarfile tempfile textwrap
    threading time timeit token tokenize trace traceback tracemalloc types typing unicodedata
    unittest unittest.mock urllib.parse urllib.request urllib.robotparser uuid warnings wave
    weakref webbrowser xml.dom.minidom xml.etree.ElementTree xml.sax.saxutils zipapp zipfile
    zipimport zlib zoneinfo
"""
_NUMPY = """
    numpy numpy.linalg numpy.fft numpy.random numpy.ma numpy.strings numpy.rec numpy.emath
    numpy.polynomial.polynomial numpy.polynomial.chebyshev numpy.polynomial.legendre
    numpy.polynomial.hermite numpy.polynomial.hermite_e numpy.polynomial.laguerre
    numpy.polynomial.polyutils numpy.lib.stride_tricks numpy.lib.recfunctions
    numpy.lib.format numpy.lib.scimath numpy.ctypeslib numpy.testing
"""
_SCIPY = """
    scipy.cluster.hierarchy scipy.cluster.vq scipy.constants scipy.datasets
    scipy.differentiate scipy.fft scipy.integrate scipy.interpolate scipy.io scipy.io.wavfile
    scipy.linalg scipy.linalg.interpolative scipy.ndimage scipy.optimize
    scipy.optimize.elementwise scipy.signal scipy.signal.windows scipy.sparse
    scipy.sparse.csgraph scipy.sparse.linalg scipy.spatial scipy.spatial.distance
    scipy.special scipy.stats scipy.stats.contingency scipy.stats.qmc scipy.stats.mstats
"""
_SKLEARN = """
    sklearn sklearn.base sklearn.calibration sklearn.cluster sklearn.compose
    sklearn.covariance sklearn.datasets sklearn.decomposition sklearn.ensemble
    sklearn.feature_extraction.image sklearn.feature_extraction.text
    sklearn.feature_selection sklearn.inspection sklearn.linear_model sklearn.manifold
    sklearn.metrics sklearn.metrics.cluster sklearn.metrics.pairwise sklearn.model_selection
    sklearn.neighbors sklearn.pipeline sklearn.preprocessing sklearn.random_projection
    sklearn.svm sklearn.tree sklearn.utils sklearn.utils.class_weight sklearn.utils.discovery
    sklearn.utils.estimator_checks sklearn.utils.extmath sklearn.utils.graph
    sklearn.utils.metadata_routing sklearn.utils.metaestimators sklearn.utils.multiclass
    sklearn.utils.parallel sklearn.utils.random sklearn.utils.sparsefuncs
    sklearn.utils.validation
"""
_PANDAS = """
    pandas pandas.api.extensions pandas.api.indexers pandas.api.interchange
    pandas.api.types pandas.plotting pandas.testing pandas.tseries.frequencies
    pandas.io.json pandas.io.formats.format pandas.errors
"""
# The standard library counts as one package: the label of `json.dumps` is `python`.
MODULES: dict[str, tuple[str, ...]] = {
    "numpy": tuple(_NUMPY.split()),
    "pandas": tuple(_PANDAS.split()),
    "python": tuple(_STANDARD.split()),
    "scipy": tuple(_SCIPY.split()),
    "sklearn": tuple(_SKLEARN.split()),
}
